package desk

import "embed"

// Statements are named after their files.
//
//go:embed sql/*.sql
var statementFiles embed.FS

var (
	listFailures  = statement("list_failures")
	showFailure   = statement("show_failure")
	countFailures = statement("count_failures")
	countParked   = statement("count_parked")
	listTopics    = statement("list_topics")
	retryRows     = statement("retry_parked")
	discardRows   = statement("discard_parked")

	listMapped    = statement("list_mapped")
	showMapped    = statement("show_mapped")
	retryMapped   = statement("retry_mapped")
	discardMapped = statement("discard_mapped")
	findShard     = statement("find_shard")

	readLeases  = statement("read_leases")
	readSlots   = statement("read_slots")
	readSamples = statement("read_samples")
	pauseRelays = statement("pause")
	resume      = statement("resume")
	listPauses  = statement("list_pauses")
)

func statement(name string) string {
	text, err := statementFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded, so only a wrong name
	}
	return string(text)
}
