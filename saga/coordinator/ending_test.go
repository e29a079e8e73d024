package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestASagaWhoseDatabaseWasSetBackSaysItsEndUnderOneID gives a saga its answers again in the other order. Its last event follows from
// the other answer then, and the services that consume it recognise the repetition.
func TestASagaWhoseDatabaseWasSetBackSaysItsEndUnderOneID(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, `{"saga":"pair","version":1,"key":"id","data":{"id":"string"},"start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id"}}],
 "steps":[
  {"name":"hotel","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"timeout":"1h","irreversible":"cheap"},
  {"name":"car","command":{"hop":"car","type":"Rent"},"success":[{"event":"Rented"}],"timeout":"1h","irreversible":"cheap"}],
 "completed":[{"event":"Ready"}]}`))
	hotel := func() { f.answer("pair/o-1", "hotel", "Booked", "hotel", "forward", "success") }
	car := func() { f.answer("pair/o-1", "car", "Rented", "car", "forward", "success") }
	ends := func(answers ...func()) (id string) {
		_, err := f.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload, headers)
			VALUES ($1, 'o-1', 'Ordered', '{"id": "o-1"}', '{"ce_correlationid": "order 1"}')`, f.name+".shop.events")
		require.NoError(t, err)
		f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
		for i, answer := range answers {
			answer()
			f.waitCount("the answer to be taken", 1, "SELECT count(*) FROM troupe.sagas WHERE version = $1", i+2)
		}
		const ready = `SELECT id::text FROM (SELECT id, type FROM troupe.outbox UNION ALL SELECT id, type FROM troupe.local_work) AS sent WHERE type = 'Ready'`
		require.NoError(t, f.pool.QueryRow(t.Context(), ready).Scan(&id))
		_, err = f.pool.Exec(t.Context(), `DELETE FROM troupe.sagas; DELETE FROM troupe.saga_events; DELETE FROM troupe.deadlines;
			DELETE FROM troupe.outbox; DELETE FROM troupe.local_work WHERE type = 'Ready'`)
		require.NoError(t, err)
		return id
	}
	require.Equal(t, ends(hotel, car), ends(car, hotel))
}
