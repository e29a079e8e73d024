package decisions

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
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

// TestABatchOfEventsThatSendLargeCommandsFillsNoMemory: each event of a few bytes begins 16 steps, which send a variable of a megabyte each.
func TestABatchOfEventsThatSendLargeCommandsFillsNoMemory(t *testing.T) {
	steps := []string{`{"name":"arrival","success":[{"event":"Arrived","hop":"door"}],"timeout":"24h"}`}
	for n := range 16 {
		steps = append(steps, fmt.Sprintf(`{"name":"letter-%d","needs":["arrival"],"command":{"hop":"post","type":"Send","input":{"note":"data.note"}},
			"success":[{"event":"Sent"}],"timeout":"24h","irreversible":"it is sent"}`, n))
	}
	db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","note":"string"},"steps":[`+strings.Join(steps, ",")+`]}`)
	var batch []Message
	for n := range 12 {
		key := strconv.Itoa(n)
		db.start(map[string]any{"id": key, "note": strings.Repeat("x", 1_000_000)})
		batch = append(batch, Message{ID: "m-" + key, Hop: "door", Type: "Arrived", Key: key})
	}
	decide := func(batch ...Message) error {
		return pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			return db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk")).messages(t.Context(), batch)
		})
	}
	var failed FailedAt
	require.ErrorAs(t, decide(batch...), &failed, "192 MB")
	require.ErrorContains(t, failed, "more than 128 MiB")
	require.Equal(t, 8, failed.Message, "the ninth message exceeds the limit, and is tried alone")
	db.take(batch[:8]...)
	db.take(batch[8])
}

// TestABatchThatSendsManyEscapedBytesFillsNoMemory: JSON writes each "<" of a variable as six bytes.
func TestABatchThatSendsManyEscapedBytesFillsNoMemory(t *testing.T) {
	steps := []string{`{"name":"arrival","success":[{"event":"Arrived","hop":"door"}],"timeout":"24h"}`}
	for n := range 16 {
		steps = append(steps, fmt.Sprintf(`{"name":"letter-%d","needs":["arrival"],"command":{"hop":"post","type":"Send","input":{"note":"data.note"}},
			"success":[{"event":"Sent"}],"timeout":"24h","irreversible":"it is sent"}`, n))
	}
	db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","note":"string"},"steps":[`+strings.Join(steps, ",")+`]}`)
	var batch []Message
	for n := range 12 {
		key := strconv.Itoa(n)
		db.start(map[string]any{"id": key, "note": strings.Repeat("<", 160_000)})
		batch = append(batch, Message{ID: "m-" + key, Hop: "door", Type: "Arrived", Key: key})
	}
	p, err := participant.New(participant.Config{Pool: db.pool, Hop: topics.MustHop("flow", "desk"), Local: true, Log: zerolog.Nop()})
	require.NoError(t, err)
	decider := New(Config{Participant: p, Definitions: db.definitions, Log: zerolog.Nop()})
	decide := func(batch ...Message) error {
		return pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			w := decider.Begin(tx)
			return w.Finish(t.Context(), make([]participant.Taken, len(batch)), w.Messages(t.Context(), batch))
		})
	}
	var failed FailedAt
	require.ErrorAs(t, decide(batch...), &failed, "184 MB, of 31 MB of text")
	require.ErrorContains(t, failed, "more than 128 MiB")
	require.Equal(t, 8, failed.Message, "the ninth message exceeds the limit, and is tried alone")
	require.NoError(t, decide(batch[:8]...))
	require.NoError(t, decide(batch[8]))
}

// TestABatchOfSagasThatEmitLargeEventsFillsNoMemory: each event of a few bytes completes a saga, which emits a variable of a megabyte 16 times.
func TestABatchOfSagasThatEmitLargeEventsFillsNoMemory(t *testing.T) {
	var emits []string
	for n := range 16 {
		emits = append(emits, fmt.Sprintf(`{"event":"Noted%d","input":{"note":"data.note"}}`, n))
	}
	db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","note":"string"},"steps":[
 {"name":"arrival","success":[{"event":"Arrived","hop":"door"}],"timeout":"24h"}],"completed":[`+strings.Join(emits, ",")+`]}`)
	var batch []Message
	for n := range 12 {
		key := strconv.Itoa(n)
		db.start(map[string]any{"id": key, "note": strings.Repeat("x", 990_000)})
		batch = append(batch, Message{ID: "m-" + key, Hop: "door", Type: "Arrived", Key: key})
	}
	err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
		return db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk")).messages(t.Context(), batch)
	})
	var failed FailedAt
	require.ErrorAs(t, err, &failed, "190 MB")
	require.ErrorContains(t, failed, "more than 128 MiB")
	require.Equal(t, 8, failed.Message, "the ninth message exceeds the limit, and is tried alone")
	db.take(batch[8])
}

// TestABatchOfSagasWithLargeStashedEventsFillsNoMemory: starts of a few bytes get events of a megabyte that have come before.
func TestABatchOfSagasWithLargeStashedEventsFillsNoMemory(t *testing.T) {
	db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string"},"stash":"24h","steps":[
 {"name":"arrival","success":[{"event":"Arrived","hop":"door"}],"timeout":"24h"}]}`)
	db.take(Message{ID: "m-0", Hop: "door", Type: "Arrived", Key: "0", Fields: map[string]any{"note": strings.Repeat("x", 1_000_000)}})
	_, err := db.pool.Exec(t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, saga_id, shared, message_id, event, expires_at)
		SELECT saga, variable, n::text, saga_id, shared, message_id || n, jsonb_set(event, '{key}', to_jsonb(n::text)), expires_at
		FROM troupe.saga_stash, generate_series(1, 150) AS n`)
	require.NoError(t, err)
	start := func(first, last int) error {
		return pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			p := db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk"))
			for n := first; n <= last; n++ {
				if _, err := p.begin(t.Context(), "visit", map[string]any{"id": strconv.Itoa(n)}); err != nil {
					return err
				}
			}
			_, err := p.end(t.Context())
			return err
		})
	}
	require.ErrorContains(t, start(0, 150), "more than 128 MiB")
	require.NoError(t, start(0, 9))
	var ended int
	require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'").Scan(&ended))
	require.Equal(t, 10, ended)
}

// guestVisits are sagas that await two events by the guest, one after the other.
const guestVisits = `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"},
 {"name":"departure","needs":["arrival"],"success":[{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`

// TestAnEventThatManySagasKeepFillsNoDisk: one event of a megabyte comes before the steps of many sagas that await it by one value.
func TestAnEventThatManySagasKeepFillsNoDisk(t *testing.T) {
	db := newDatabase(t, guestVisits)
	for n := range 150 {
		db.start(map[string]any{"id": strconv.Itoa(n), "guest": "g-1"})
	}
	departed := func(size int) Message {
		fields := map[string]any{"guest": "g-1", "note": strings.Repeat("x", size)}
		return Message{ID: "m-1", Hop: "door", Type: "Departed", Key: "x", Fields: fields}
	}
	err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
		return db.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk")).messages(t.Context(), []Message{departed(1_000_000)})
	})
	require.ErrorContains(t, err, "more than 128 MiB")
	db.take(departed(10_000))
	var kept int
	require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_stash").Scan(&kept))
	require.Equal(t, 150, kept)
}

// TestAnEventThatManySagasHaveNoRoomForFillsNoMemory: the event is tried again for each of them, by a deadline that has its fields.
func TestAnEventThatManySagasHaveNoRoomForFillsNoMemory(t *testing.T) {
	db := newDatabase(t, guestVisits)
	for _, key := range []string{"0", "1"} {
		db.start(map[string]any{"id": key, "guest": "g-1"})
		_, err := db.pool.Exec(t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, saga_id, message_id, event)
			VALUES ('visit', 'guest', 'g-1', 'visit/' || $1::text, 'm-0', jsonb_build_object('kind', 'observed', 'note', repeat('x', 8400000)))`, key)
		require.NoError(t, err)
	}
	p, err := participant.New(participant.Config{Pool: db.pool, Hop: topics.MustHop("flow", "desk"), Local: true, Log: zerolog.Nop()})
	require.NoError(t, err)
	decider := New(Config{Participant: p, Definitions: db.definitions, Log: zerolog.Nop()})
	departed := Message{ID: "m-1", Hop: "door", Type: "Departed", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	take := func(size int) (tried int, err error) {
		err = pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			w := decider.Begin(tx)
			err := w.Messages(t.Context(), []Message{departed})
			tried, w.pass.size = len(w.pass.retries), size
			return w.Finish(t.Context(), nil, err)
		})
		return tried, err
	}
	tried, err := take(maxDecided)
	require.Equal(t, 2, tried)
	require.ErrorContains(t, err, "more than 128 MiB")
	_, err = take(0)
	require.NoError(t, err)
}

// TestStashedEventsAreReadAsFarAsASagaAwaitsThem: 8 MB of events came before the sagas of their value, which await one of them, or another event
// first.
func TestStashedEventsAreReadAsFarAsASagaAwaitsThem(t *testing.T) { // not parallel: it measures the memory of the process
	for name, stash := range map[string]struct {
		typ          string
		count, bytes int
		idLength     int
	}{
		"large events that are awaited later":         {typ: "Departed", count: 8, bytes: 1_000_000},
		"events with ids of which the hash is stored": {typ: "Departed", count: 8, bytes: 1_000_000, idLength: 300},
		"many events that are awaited now":            {typ: "Arrived", count: 2000, bytes: 4000},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, guestVisits)
			var early []Message
			for n := range stash.count {
				fields := map[string]any{"guest": "g-1", "note": strings.Repeat("x", stash.bytes)}
				id := fmt.Sprintf("e-%0*d", stash.idLength, n)
				early = append(early, Message{ID: id, Hop: "door", Type: stash.typ, Key: "x", Fields: fields})
			}
			db.take(early...)
			db.start(map[string]any{"id": "first", "guest": "g-1"})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for n := range 40 {
				db.start(map[string]any{"id": strconv.Itoa(n), "guest": "g-1"})
			}
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
		})
	}
}

// TestStashedEventsThatNoSagaAwaitsAreReadOnce: 8 MB of events came before the sagas of their value, which await another event first.
func TestStashedEventsThatNoSagaAwaitsAreReadOnce(t *testing.T) { // not parallel: it measures the memory of the process
	db := newDatabase(t, guestVisits)
	event := func(typ, id, note string) Message {
		return Message{ID: id, Hop: "door", Type: typ, Key: "x", Fields: map[string]any{"guest": "g-1", "note": note}}
	}
	for n := range 8 {
		db.take(event("Departed", "d-"+strconv.Itoa(n), strings.Repeat("x", 1_000_000)))
	}
	for n := range 40 {
		db.start(map[string]any{"id": strconv.Itoa(n), "guest": "g-1"})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	db.take(event("Departed", "d-9", ""))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20))
	db.take(event("Arrived", "a-1", ""))
	var left int
	require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE status = 'running'").Scan(&left))
	require.Zero(t, left, "8 sagas take the events that came before, and the others take the last one")
}
