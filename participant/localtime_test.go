package participant_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
)

// created_at is the writer's to set. One entry with a time that Go cannot read must not stop the others.
func TestLocalWorkWithoutAUsableCreationTimeIsHandledAsAnyOther(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	times := []string{"infinity", "-infinity", "20000-01-01", "4000-01-01 BC"}
	s.writeAt("Count", times...)
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.write("other", Count{N: 1})
	s.waitCount(len(times)+1, "SELECT count(*) FROM done WHERE attempt = 1")
	s.waitEvents(len(times) + 1)
	s.expectLegal()
}

// An entry behind one without a handler has waited for one since it was written, at most until now.
func TestLocalWorkOfAnyTimeMayWaitForAHandler(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	times := []string{"2026-01-01", "infinity", "-infinity", "20000-01-01", "4000-01-01 BC"}
	s.writeAt("Other", times...)
	p := s.new(atOnce)
	participant.Handle(p, count)
	s.start(p)
	s.write("other", Count{N: 1})
	s.waitCount(len(times), "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison'")
	s.waitCount(1, "SELECT count(*) FROM done")
}

// The role of an operator may write the retry columns of local work. It cannot write a time there that the group's members cannot read.
func TestAnOperatorsRoleStopsNoLocalWorkByATime(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("k", Count{N: 1})
	operator := grantstest.New(s.t, s.pool, grants.Operator).Pool()
	for _, column := range []string{"first_failed_at", "last_failed_at", "unhandled_since", "next_try"} {
		for _, at := range []string{"infinity", "-infinity", "4000-01-01 BC"} {
			_, err := operator.Exec(t.Context(), "UPDATE troupe.local_work SET last_error = 'forged', "+column+" = $1::text::timestamptz", at)
			require.ErrorContains(t, err, "check constraint", "%s = %s", column, at)
		}
	}
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.write("other", Count{N: 1})
	s.waitCount(2, "SELECT count(*) FROM done")
}

// A row of a local topic may have a type of any length, which a message in Kafka may not. Its exhausted event has the type, and must not
// be larger than the outbox takes.
func TestATypeThatIsTooLongIsPoisonAndNotLogged(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', repeat('x', 1000000), '{}')", s.hop.Commands())
	require.NoError(t, err)
	var log safeBuffer
	p := s.new(func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error LIKE '%1000000 bytes%'")
	s.write("k", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	for line := range strings.Lines(log.String()) {
		require.Less(t, len(line), 10_000)
	}
}

// Every message that follows from a row has its key and more headers, and must not be larger than a row may be.
func TestLocalWorkWithAKeyThatIsTooLongIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, repeat('k', 8388500), 'Count', $2)",
		s.hop.Commands(), marshal(Count{N: 1}))
	require.NoError(t, err)
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.write("other", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE octet_length(key) = 8388500")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
}

// A writer may insert rows into a local topic that no relay would publish. Each is handled or becomes a dead letter, and stops no other.
func TestLocalWorkThatNoOutboxTakesDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	writer := grantstest.New(s.t, s.pool, grants.Writer).Pool()
	rows := []struct{ column, value string }{
		{"headers", `'{"ce_id": null, "ce_source": 7, "": "", "ce_time": "9999-12-31T23:59:59-23:59", "ce_outcome": "maybe"}'::jsonb`},
		{"headers", `(SELECT jsonb_object_agg('h' || n, repeat('v', 1000)) FROM generate_series(1, 300) AS n)`},
		{"headers", `jsonb_build_object('h', repeat('v', 5000000))`},
		{"headers", `jsonb_build_object('n', 1e100000::numeric)`},
		{"raw_headers", `'\xffffffffffffffffffff'::bytea`},
		{"raw_headers", `'\x00'::bytea`},
		{"raw_headers", `convert_to(repeat('x', 1000000), 'UTF8')`},
		{"key_bytes", `'\x00ff'::bytea`},
		{"key_bytes", `''::bytea`},
		{"id", `'00000000-0000-0000-0000-000000000000'::uuid`},
		{"id", `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`},
		{"payload", `NULL`},
		{"payload", `'\x00ff'::bytea`},
		{"type", `E'\n\x1b[2J'`},
	}
	for _, row := range rows {
		columns := map[string]string{"topic": "'" + s.hop.Commands() + "'", "type": "'Count'", "payload": "'" + string(marshal(Count{N: 1})) + "'", row.column: row.value}
		names := slices.Sorted(maps.Keys(columns))
		values := make([]string, len(names))
		for i, name := range names {
			values[i] = columns[name]
		}
		_, err := writer.Exec(t.Context(), fmt.Sprintf("INSERT INTO troupe.outbox (%s) VALUES (%s)", strings.Join(names, ", "), strings.Join(values, ", ")))
		require.NoError(t, err, "%s: %s", row.column, row.value)
	}
	p := s.new(atOnce)
	participant.Handle(p, count)
	s.start(p)
	s.write("other", Count{N: 1})
	s.waitCount(len(rows)+1, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NOT NULL")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
	s.expectLegal()
}

// writeAt inserts commands of one key with these creation times, with the rights of a writer.
func (s *stage) writeAt(typ string, times ...string) {
	s.t.Helper()
	writer := grantstest.New(s.t, s.pool, grants.Writer).Pool()
	for i, at := range times {
		_, err := writer.Exec(s.t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload, created_at) VALUES ($1, 'k', $2, $3, $4::text::timestamptz)",
			s.hop.Commands(), typ, marshal(Count{N: i + 1}), at)
		require.NoError(s.t, err)
	}
}
