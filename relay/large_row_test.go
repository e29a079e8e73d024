package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestARowThatWouldFillTheMemoryOfARelayIsRefused: a service with the right to insert could write a row of 900 MB, which has 10 MB on
// disk, and end each relay with a limit of its memory again and again. Each column counts as it is read, also if it was stored compressed
// in another table. The largest rows that are accepted are parked, and others go on.
func TestARowThatWouldFillTheMemoryOfARelayIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	writer, err := grantstest.New(t, s.pool, grants.Writer).Pool().Acquire(t.Context()) // one session, for its temporary table
	require.NoError(t, err)
	defer writer.Release()
	_, err = writer.Exec(t.Context(), `CREATE TEMP TABLE bomb AS SELECT jsonb_build_object('x', repeat('x', 8400000)) AS headers`)
	require.NoError(t, err)
	for column, value := range map[string]string{
		"payload":     "convert_to(repeat('x', 8400000), 'UTF8')",
		"key":         "repeat('x', 8400000)",
		"key_bytes":   "convert_to(repeat('x', 8400000), 'UTF8')",
		"headers":     "(SELECT headers FROM bomb)",
		"raw_headers": "convert_to(repeat('x', 8400000), 'UTF8')",
	} {
		_, err := writer.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, type, `+column+`) VALUES ($1, 'Thing', `+value+`)`, s.topic)
		require.ErrorContains(t, err, "outbox_size", column)
	}
	for _, column := range []string{"topic", "type"} {
		other := map[string]string{"topic": "type", "type": "topic"}[column]
		_, err := writer.Exec(t.Context(), `INSERT INTO troupe.outbox (`+column+`, `+other+`) VALUES (repeat('x', 8400000), 'x')`)
		require.ErrorContains(t, err, "outbox_size", column)
	}
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'large ' || n, 'Thing', convert_to(repeat('x', 8388608 - 100), 'UTF8') FROM generate_series(1, 3) AS n`, s.topic)
	s.insert(s.topic, "small", "1")
	s.start(s.config())
	require.Equal(t, []string{"1"}, values(s.gather(1, s.topic)))
	testkit.Wait(t, "the large rows are parked", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 3, nil
	})
}
