package relay

import "embed"

// statementFiles holds the statements, which are named after their files. Each is a transaction of its own, so a relay that freezes holds no
// lock on a row or a table. Only findTransaction runs in a longer transaction, and it locks neither.
//
//go:embed sql/*.sql
var statementFiles embed.FS

var (
	claimLease             = statement("claim_lease")
	readLease              = statement("read_lease")
	lookStatement          = statement("look")
	claimShard             = statement("claim_shard")
	readShards             = statement("read_shards")
	wantShard              = statement("want_shard")
	divide                 = statement("divide")
	readLayout             = statement("read_layout")
	renewLease             = statement("renew_lease")
	renewMappedLease       = statement("renew_mapped_lease")
	storeSource            = statement("store_source")
	readPause              = statement("read_pause")
	releaseLease           = statement("release_lease")
	claimRows              = statement("claim_rows")
	readOn                 = statement("read_on")
	deleteRange            = statement("delete_range")
	deleteRows             = statement("delete_rows")
	removePublished        = statement("remove_published")
	recordFailures         = statement("record_failures")
	parkUnreadableRows     = statement("park_unreadable")
	parkUnreadableFailures = statement("park_unreadable_failures")

	forgetFailures    = statement("forget_failures")
	recallFailures    = statement("recall_failures")
	listWriters       = statement("list_writers")
	lowestRow         = statement("lowest_row")
	claimFailures     = statement("claim_failures")
	readBlocking      = statement("read_blocking")
	firstUnblocked    = statement("first_unblocked")
	cureFailures      = statement("cure_failures")
	failedKeys        = statement("list_failed_keys")
	readState         = statement("read_state")
	listMissingTables = statement("list_missing_tables")
	storeState        = statement("store_state")
	readSlot          = statement("read_slot")
	dropSlot          = statement("drop_slot")
	readWalsender     = statement("read_walsender")
	readStandbyWait   = statement("read_standby_wait")
	standbyLacks      = statement("standby_lacks")
	readGuard         = statement("read_guard")
	sampleGuard       = statement("sample_guard")
	useSlot           = statement("use_slot")
	findTransaction   = statement("find_transaction")
	writeMessage      = statement("write_message")
	listLeftSlots     = statement("list_left_slots")
	listSlotUsers     = statement("list_slot_users")
	readSlotOfOutbox  = statement("read_slot_of_outbox")
	anyDiscard        = statement("any_discard")
	listDiscards      = statement("list_discards")
	takeSample        = statement("sample")
	recordWaiting     = statement("record_waiting")
	replayRows        = statement("replay_rows")
	newestPosition    = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM troupe.outbox_position_seq`

	claimMappedTable     = statement("claim_mapped_table")
	readMappedState      = statement("read_mapped_state")
	storeMappedState     = statement("store_mapped_state")
	recordMappedFailures = statement("record_mapped_failures")
	claimMappedFailures  = statement("claim_mapped_failures")
	readMappedBlocking   = statement("read_mapped_blocking")
	recallMappedFailures = statement("recall_mapped_failures")
	cureMappedFailures   = statement("cure_mapped_failures")
	deleteLaterMapped    = statement("delete_later_mapped")
	clearMappedCommits   = statement("clear_mapped_commits")
	mappedKeys           = statement("list_mapped_keys")
	firstMappedFailures  = statement("list_mapped_first")
	listRecordedMapped   = statement("list_recorded_mapped")
	listLeftMappedSlots  = statement("list_left_mapped_slots")
)

func statement(name string) string {
	text, err := statementFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded, so only a wrong name
	}
	return string(text)
}
