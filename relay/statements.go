package relay

import "embed"

// Statements are named after their files. Each runs alone: no transaction of the relay spans two round trips, so a relay that
// freezes holds no lock.
//
//go:embed sql/*.sql
var statementFiles embed.FS

var (
	claimLease            = statement("claim_lease")
	readLease             = statement("read_lease")
	look                  = statement("look")
	claimShard            = statement("claim_shard")
	readShards            = statement("read_shards")
	wantShard             = statement("want_shard")
	divide                = statement("divide")
	readLayout            = statement("read_layout")
	renewLease            = statement("renew_lease")
	noteSource            = statement("note_source")
	readPause             = statement("read_pause")
	releaseLease          = statement("release_lease")
	claimRows             = statement("claim_rows")
	readOn                = statement("read_on")
	deleteRange           = statement("delete_range")
	deleteRows            = statement("delete_rows")
	recordTrouble         = statement("record_trouble")
	parkUnreadableRows    = statement("park_unreadable")
	parkUnreadableTrouble = statement("park_unreadable_trouble")

	forgetTrouble  = statement("forget_trouble")
	recallTrouble  = statement("recall_trouble")
	listWriters    = statement("list_writers")
	lowestRow      = statement("lowest_row")
	claimTrouble   = statement("claim_trouble")
	readBlocking   = statement("read_blocking")
	cureTrouble    = statement("cure_trouble")
	troubledKeys   = statement("list_troubled_keys")
	readState      = statement("read_state")
	storeState     = statement("store_state")
	readSlot       = statement("read_slot")
	readWalsender  = statement("read_walsender")
	readGuard      = statement("read_guard")
	noteGuard      = statement("note_guard")
	findCheckpoint = statement("find_checkpoint_row")
	listLeftSlots  = statement("list_left_slots")
	listDiscards   = statement("list_discards")
	findDiscard    = statement("find_discard")
	takeSample     = statement("sample")
	noteWaiting    = statement("note_waiting")
	replayRows     = statement("replay_rows")
	newestPosition = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM troupe.outbox_position_seq`

	claimMappedTable    = statement("claim_mapped_table")
	readMappedState     = statement("read_mapped_state")
	storeMappedState    = statement("store_mapped_state")
	recordMappedTrouble = statement("record_mapped_trouble")
	claimMappedTrouble  = statement("claim_mapped_trouble")
	readMappedBlocking  = statement("read_mapped_blocking")
	recallMappedTrouble = statement("recall_mapped_trouble")
	cureMappedTrouble   = statement("cure_mapped_trouble")
	mappedKeys          = statement("list_mapped_keys")
	listRecordedMapped  = statement("list_recorded_mapped")
)

func statement(name string) string {
	text, err := statementFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded, so only a wrong name
	}
	return string(text)
}
