package decisions

import (
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestAnEventForManyLargeSagasFillsNoMemory: a producer starts many sagas with one value and a megabyte each. An event with this value
// finds all of them.
func TestAnEventForManyLargeSagasFillsNoMemory(t *testing.T) { // not parallel: it measures the memory of the process
	db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string","note":"string"},"steps":[
 {"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"},
 {"name":"departure","needs":["arrival"],"success":[{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`)
	db.start(map[string]any{"id": "0", "guest": "g-1", "note": strings.Repeat("x", 1_000_000)})
	for _, sql := range []string{
		`INSERT INTO troupe.sagas SELECT (s).* FROM (SELECT jsonb_populate_record(s, jsonb_build_object('id', 'visit/' || n, 'key', n::text,
			'state', jsonb_set(s.state, '{key}', to_jsonb(n::text)))) AS s FROM troupe.sagas AS s, generate_series(1, 200) AS n) AS all_sagas`,
		`INSERT INTO troupe.saga_associations SELECT 'visit', 'guest', value, 'visit/' || n FROM troupe.saga_associations, generate_series(1, 200) AS n`,
	} {
		_, err := db.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	arrived := Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
		return db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk")).messages(t.Context(), []Message{arrived})
	})
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "more than 128 MiB")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
	require.ErrorAs(t, err, new(unreadable), "the message is tried again, alone")
	_, err = db.pool.Exec(t.Context(), "DELETE FROM troupe.saga_associations WHERE saga_id > 'visit/150'")
	require.NoError(t, err)
	db.take(arrived)
	var left int
	require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE steps = 'departure'").Scan(&left))
	require.Positive(t, left, "a part of them is less than the limit")
}
