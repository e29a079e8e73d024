package grants_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// anySize lists the columns that roles of services and relays may write without a limit of the size, with the reason.
var anySize = map[string]string{
	"sagas.key":                  "a check makes it a part of the id, which is in an index",
	"sagas.state":                "TestAValueThatWouldFillTheMemoryIsNotRead",
	"saga_events.event":          "TestAValueThatWouldFillTheMemoryIsNotRead",
	"saga_events.moments":        "TestAValueThatWouldFillTheMemoryIsNotRead",
	"local_work.hold_key":        "in an index of the rows that have not ended, which are the ones that lists have",
	"expectations.headers":       "no list reads it",
	"expectations.payload":       "no list reads it",
	"relay_leases.holder":        cutInLists,
	"relay_leases.slot":          cutInLists,
	"relay_leases.wanted":        cutInLists,
	"relay_leases.source_why":    cutInLists,
	"relay_leases.paused_by":     cutInLists,
	"relay_leases.paused_why":    cutInLists,
	"relay_slot_samples.slot":    cutInLists,
	"mapped_failures.event_id":   cutInLists,
	"mapped_failures.topic":      cutInLists,
	"mapped_failures.order_key":  cutInLists,
	"mapped_failures.last_error": cutInLists,
	"mapped_failures.row":        "a row of a table with a mapping has any size; no list reads it",
}

const cutInLists = "TestTheRelayOfATableFillsNoMemory"

// ownSizes lists the tables that only the programs of the role that writes them read.
var ownSizes = strings.Fields("answers saga_stash joins join_parts outbox_posts relay_state mapped_tables")

var operators = []grants.Part{grants.Operator, grants.SagaOperator, grants.RelayOperator}

// anySizeOfOperators is anySize for operators' roles.
var anySizeOfOperators = map[string]string{
	"sagas.key":                  anySize["sagas.key"],
	"sagas.state":                anySize["sagas.state"],
	"saga_events.event":          anySize["saga_events.event"],
	"saga_events.moments":        anySize["saga_events.moments"],
	"relay_leases.paused_by":     "TestARelayOperatorStopsNoRelayByOddValues",
	"relay_leases.paused_why":    "TestARelayOperatorStopsNoRelayByOddValues",
	"outbox_repairs.topic":       ofARow,
	"outbox_repairs.order_key":   ofARow,
	"outbox_repairs.last_error":  ofARow,
	"outbox_repairs.type":        ofARow,
	"outbox_repairs.headers":     ofARow,
	"outbox_repairs.raw_headers": ofARow,
	"outbox_repairs.payload":     ofARow,
	"outbox_repairs.mapped_row":  ofARow,
}

const ofARow = "a row of the outbox, or of a table with a mapping; no list reads more than the beginning of its topic"

// TestNoOperatorWritesAValueOfAnySize: the console lists the actions of all operators, and participants read the rebuilds that an operator starts. One such
// row would end them, and only the owner may delete it.
func TestNoOperatorWritesAValueOfAnySize(t *testing.T) {
	t.Parallel()
	requireSizes(t, anySizeOfOperators, nil, operators)
}

// A row of a gigabyte can have some megabytes on disk. The console, and the commands for operators, read lists of the rows of all services: one such
// row would end them. So each column of text, bytes or JSON that a part's role may write has a limit, is in an index, whose entries have some
// kilobytes, or is in one of the lists above.
func TestNoServiceWritesAValueOfAnySize(t *testing.T) {
	t.Parallel()
	requireSizes(t, anySize, ownSizes, slices.DeleteFunc(grants.Parts(), func(part grants.Part) bool {
		return part == grants.Watch || part == grants.Viewer || slices.Contains(operators, part) // a database of its own, roles that only read, and operators
	}))
}

// requireSizes requires that each column that the role of one of several parts may write has a limit of its size, is in an index, or is in one of
// two lists.
func requireSizes(t *testing.T, anySize map[string]string, ownSizes []string, parts []grants.Part) {
	t.Helper()
	pool := testkit.Database(t)
	listed := make(map[string]bool)
	for _, part := range parts {
		rows, err := pool.Query(t.Context(), `
			SELECT c.relname || '.' || a.attname
			FROM pg_attribute AS a
			JOIN pg_class AS c ON c.oid = a.attrelid
			WHERE c.relnamespace = 'troupe'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			  AND format_type(a.atttypid, NULL) IN ('text', 'bytea', 'jsonb', 'text[]') AND NOT a.attisdropped AND a.attgenerated = ''
			  AND has_column_privilege($1, c.oid, a.attnum, 'INSERT, UPDATE')
			  AND NOT EXISTS (
			    SELECT
			    FROM pg_constraint AS k
			    WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)
			      AND (pg_get_constraintdef(k.oid) ~ ('length\((array_to_string\()?\(?' || a.attname || '\M') OR pg_get_constraintdef(k.oid) ~ ('\m' || a.attname || ' = ANY \(ARRAY')))
			  AND NOT EXISTS (
			    SELECT
			    FROM pg_index AS i
			    JOIN pg_class AS x ON x.oid = i.indexrelid
			    JOIN pg_am AS m ON m.oid = x.relam
			    WHERE i.indrelid = c.oid AND m.amname = 'btree' AND i.indpred IS NULL AND a.attnum = ANY (i.indkey))`,
			grantstest.New(t, pool, part).Name)
		require.NoError(t, err)
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, column := range columns {
			table, _, _ := strings.Cut(column, ".")
			require.True(t, anySize[column] != "" || slices.Contains(ownSizes, table), "%s may write %s, which has no limit", part, column)
			listed[column], listed[table] = true, true
		}
	}
	for _, entry := range slices.Concat(slices.Collect(maps.Keys(anySize)), ownSizes) {
		require.True(t, listed[entry], "%s needs no entry", entry)
	}
}
