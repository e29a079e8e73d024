//go:build unix

package relay_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/testkit"
)

// A modelPlan is one random history: a database, the settings of the relay's role, a source, and steps.
type modelPlan struct {
	Encoding string            // of the database
	Settings map[string]string // of the relay's role
	Source   string            // one of modelSources
	Other    bool              // the process publishes another database too
	XID      bool              // the mapping names the table's column of transaction ids
	Order    string            // of mapped tables: one of modelOrders
	Parts    bool              // the mapped table is partitioned
	Wide     bool              // its publication also publishes updates, deletes and truncations
	Second   bool              // the last key of modelKeys is written to a second mapped table, with the same topic
	Steps    []modelStep
}

// A modelStep is a write, a fault or an act of an operator. Kind chooses the method of history that runs it.
type modelStep struct {
	Kind string
	Key  int // index in modelKeys
	Rows int
	Mode string
}

const (
	beside     = "with a row that cannot be published" // in one transaction
	withoutXID = "without a transaction id"
	vanishing  = "deleted in its transaction"
	restored   = "with a transaction id of long ago"
	inLeaf     = "into a partition"
	released   = "in a savepoint that is released"
	prepared   = "prepared"
)

const (
	byPosition  = "position"
	byTimestamp = "timestamp"
	byNothing   = "nothing"
)

// modelOrders has the columns by which the mapping orders a sweep. Without one, a sweep promises no order.
var modelOrders = []string{byPosition, byPosition, byTimestamp, byNothing}

const (
	fromPoll        = "poll"
	fromShards      = "poll in shards"
	fromLog         = "log"
	fromLogOnce     = "log, exactly once"
	fromMappedTable = "log of a mapped table"
	fromMappedOnce  = "log of a mapped table, exactly once"
)

var modelSources = []string{fromPoll, fromShards, fromLog, fromLogOnce, fromMappedTable, fromMappedOnce}

func isMapped(source string) bool { return source == fromMappedTable || source == fromMappedOnce }

func isExact(source string) bool { return source == fromLogOnce || source == fromMappedOnce }

// modelKeys has keys that differ in what can go wrong: none, empty, long, with letters beyond ASCII.
var modelKeys = []*string{nil, ptr(""), ptr("a"), ptr("b"), ptr("é"), ptr("line\nbreak"), ptr(fmt.Sprintf("%0300d", 1)), ptr("last")}

func ptr(s string) *string { return &s }

// modelSettings are settings that a database administrator may have given the relay's role or every role. What bounds the first
// statement of a session, which no setting of ours precedes, is long enough for a slow machine.
var modelSettings = map[string][]string{
	"statement_timeout":                   {"2s", "10s"},
	"lock_timeout":                        {"20ms"},
	"idle_in_transaction_session_timeout": {"50ms"},
	"idle_session_timeout":                {"2s"},
	"search_path":                         {"", "pg_catalog"},
	"default_transaction_isolation":       {"serializable", "repeatable read"},
	"default_transaction_deferrable":      {"on"},
	"synchronous_commit":                  {"off", "remote_apply"},
	"client_encoding":                     {"LATIN1", "SQL_ASCII"},
	"datestyle":                           {"German, DMY"},
	"intervalstyle":                       {"iso_8601"},
	"timezone":                            {"Asia/Kathmandu"},
	"bytea_output":                        {"escape"},
	"extra_float_digits":                  {"-15"},
	"enable_indexscan":                    {"off"},
	"plan_cache_mode":                     {"force_generic_plan"},
	"row_security":                        {"off"},
}

func drawModelPlan(t *rapid.T) modelPlan {
	p := modelPlan{
		Encoding: rapid.SampledFrom([]string{"UTF8", "UTF8", "LATIN1", "WIN1252", "SQL_ASCII"}).Draw(t, "encoding"),
		Settings: map[string]string{},
		Source:   rapid.SampledFrom(modelSources).Draw(t, "source"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "number of settings") {
		name := rapid.SampledFrom(sortedKeys(modelSettings)).Draw(t, "setting")
		p.Settings[name] = rapid.SampledFrom(modelSettings[name]).Draw(t, "value")
	}
	if p.Encoding == "WIN1252" && p.Settings["client_encoding"] == "LATIN1" {
		delete(p.Settings, "client_encoding") // the server has no such conversion and refuses every session of the role
	}
	p.Other = rapid.IntRange(0, 3).Draw(t, "another database") == 0
	if isMapped(p.Source) {
		p.XID = rapid.Bool().Draw(t, "a column of transaction ids")
		p.Order = rapid.SampledFrom(modelOrders).Draw(t, "order")
		p.Parts = rapid.IntRange(0, 2).Draw(t, "partitions") == 0
		p.Wide = rapid.IntRange(0, 2).Draw(t, "updates") == 0
		p.Second = rapid.IntRange(0, 2).Draw(t, "a second table") == 0
	}
	for range rapid.IntRange(3, 14).Draw(t, "number of steps") {
		p.Steps = append(p.Steps, drawModelStep(t, p))
	}
	return p
}

func drawModelStep(t *rapid.T, p modelPlan) modelStep {
	kinds := []string{"write", "write", "write", "open", "close", "settle", "cut", "kill", "stop", "freeze", "thaw",
		"too large", "discard", "retry", "image", "set back", "lose lease", "pause", "resume"}
	if p.Other {
		kinds = append(kinds, "write other", "write other")
	}
	if !isMapped(p.Source) {
		kinds = append(kinds, "unknown topic", "replay")
	}
	if isMapped(p.Source) {
		kinds = append(kinds, "delete", "delete", "update", "truncate", "rewrite", "rewrite", "columns", "columns", "retype", "retype",
			"identity", "rename")
		if p.Parts {
			kinds = append(kinds, "detach", "attach")
		} else {
			kinds = append(kinds, "swap")
		}
	}
	if p.Encoding == "WIN1252" || p.Encoding == "SQL_ASCII" {
		kinds = append(kinds, "not UTF-8", "not UTF-8")
	}
	if p.Source != fromPoll && p.Source != fromShards {
		kinds = append(kinds, "drop slot", "publication off", "publication on")
	}
	if isMapped(p.Source) {
		kinds = append(kinds, "change delivery")
	} else {
		kinds = append(kinds, "change source", "change source", "slot name")
	}
	modes := []string{"commit", "commit", "rollback", "savepoint", "asynchronous", beside, released, prepared}
	if !isMapped(p.Source) { // there such a row is parked
		modes = append(modes, "infinity", "-infinity", restored)
	}
	if p.XID {
		modes = append(modes, withoutXID)
	}
	if isMapped(p.Source) {
		modes = append(modes, vanishing, vanishing)
	}
	if p.Parts {
		modes = append(modes, inLeaf)
	}
	step := modelStep{
		Kind: rapid.SampledFrom(kinds).Draw(t, "step"),
		Key:  rapid.IntRange(0, len(modelKeys)-1).Draw(t, "key"),
		Rows: rapid.SampledFrom([]int{1, 1, 2, 5, 300}).Draw(t, "rows"),
		Mode: rapid.SampledFrom(modes).Draw(t, "mode"),
	}
	if step.Kind == "change source" {
		step.Mode = rapid.SampledFrom([]string{fromPoll, fromShards, fromLog, fromLogOnce}).Draw(t, "new source")
	}
	return step
}

// TestAnyHistoryOfARelayKeepsItsPromises runs random histories for TROUPE_MODEL, or the one that -rapid.seed names, or else the
// same few at each run. Steps discard and retry parked rows, replay published ones, set the database back to an image, and write to a
// second database of the same process. Of a mapped table, they also delete, update, move and truncate its rows, and change its columns and
// partitions, its name and its place. Each committed row must be published, in the order of its key, none that rolled back, and under
// exactly-once none twice; and a row that cannot be published must be visible in the table of failures.
func TestAnyHistoryOfARelayKeepsItsPromises(t *testing.T) {
	// A history that fails may wait for modelLimit, and so would each shorter one: it is printed as it was drawn.
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.nofailfile": "true", "rapid.shrinktime": "0s"} {
		require.NoError(t, flag.Set(name, value))
	}
	m := &model{server: testkit.Postgres(t), brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	if os.Getenv("TROUPE_POSTGRES") == "" { // the shared server has no prepared transactions
		var err error
		m.server, err = devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "20"}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.server.Close()) })
		m.prepares = true
	}
	run := func() { rapid.Check(t, func(rt *rapid.T) { m.run(t, rt, drawModelPlan(rt)) }) }
	seed := flag.Lookup("rapid.seed").Value
	switch text := os.Getenv("TROUPE_MODEL"); {
	case seed.String() != "0":
		run()
	case text != "":
		length, err := time.ParseDuration(text)
		require.NoError(t, err)
		n := 0
		for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); n++ {
			run()
		}
		t.Logf("%d histories", n)
	default:
		defer func() { require.NoError(t, seed.Set("0")) }()
		for n := 1; n <= modelHistories && !t.Failed(); n++ {
			require.NoError(t, seed.Set(strconv.Itoa(n)))
			run()
		}
	}
}

// modelHistories limits the histories of a run without TROUPE_MODEL. Their seeds count from 1.
const modelHistories = 8
