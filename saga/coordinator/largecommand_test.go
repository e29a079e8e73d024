package coordinator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// report sends its text three times in one command, after an event that all reports of a day await.
const report = `{"saga":"report","version":1,"key":"id","data":{"id":"string","day":"string","text":"string"},
 "steps":[
  {"name":"day","success":[{"event":"DayEnded","hop":"clock","by":{"field":"day","variable":"day"}}],"irreversible":"cheap"},
  {"name":"print","needs":["day"],"command":{"hop":"printer","type":"Print","input":{"a":"data.text","b":"data.text","c":"data.text"}},"success":[{"event":"Printed"}],"timeout":"1h","irreversible":"cheap"}],
 "deadlines":[{"name":"late","after":"1s","emit":[{"event":"ReportIsLate","input":{"a":"data.text","b":"data.text","c":"data.text"}}]}]}`

// TestASagaWithATooLargeCommandStopsNoOther: its command has more bytes than the outbox takes. The other saga of the event goes on.
func TestASagaWithATooLargeCommandStopsNoOther(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	d := parsed(t, strings.ReplaceAll(report, `"after":"1s"`, `"after":"24h"`))
	f.c = f.coordinator(d)
	large := f.begun("report", map[string]any{"id": "large", "day": "monday", "text": strings.Repeat("<", 60_000)})
	small := f.begun("report", map[string]any{"id": "small", "day": "monday", "text": strings.Repeat("<", 50_000)})
	_, err := f.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'monday', 'DayEnded', '{"day": "monday"}')`, f.name+".clock.events")
	require.NoError(t, err)
	s := f.becomesState(large, saga.Parked)
	require.Contains(t, s.Reason, "print: Print: it would have 1080022 bytes, and a message has at most 1000000")
	f.waitCount("the command of the other saga", 1, "SELECT count(*) FROM troupe.outbox WHERE type = 'Print' AND key = 'small'")
	f.becomesState(small, saga.Running)
	require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.saga_events WHERE event ? 'limit'"))
	f.equalsItsLogOf(large)

	_, err = f.act(large, saga.Event{Kind: saga.ActSet, Fields: map[string]any{"text": "short"}, Actor: "ann", Reason: "ticket 7"})
	require.NoError(t, err)
	fx, err := f.act(large, annsEvent(saga.ActResume, ""))
	require.NoError(t, err)
	require.Len(t, fx.Commands, 1)
	f.equalsItsLogOf(large)
}

// TestADeadlineWithATooLargeEventParksItsSaga: the deadline stays due, and is applied when the saga is resumed.
func TestADeadlineWithATooLargeEventParksItsSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, report))
	large := f.begun("report", map[string]any{"id": "large", "day": "monday", "text": strings.Repeat("<", 60_000)})
	s := f.becomesState(large, saga.Parked)
	require.Contains(t, s.Reason, "ReportIsLate: it would have 1080022 bytes")
	require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))
	_, err := f.act(large, saga.Event{Kind: saga.ActSet, Fields: map[string]any{"text": "short"}, Actor: "ann", Reason: "ticket 7"})
	require.NoError(t, err)
	fx, err := f.act(large, annsEvent(saga.ActResume, ""))
	require.NoError(t, err)
	require.Len(t, fx.Events, 1)
	f.equalsItsLogOf(large)
}

// TestACallerWhoseCommandIsTooLargeGetsTheError: nothing is stored.
func TestACallerWhoseCommandIsTooLargeGetsTheError(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, `{"saga":"note","version":1,"key":"id","data":{"id":"string","text":"string"},
	 "steps":[{"name":"print","command":{"hop":"printer","type":"Print","input":{"a":"data.text"}},"success":[{"event":"Printed"}],"timeout":"1h"}]}`))
	_, err := f.c.Submit(t.Context(), "note", map[string]any{"id": "n-1", "text": strings.Repeat("x", 1_000_000)}, nil)
	require.ErrorContains(t, err, "larger than the outbox takes")
	require.Zero(t, f.count("SELECT count(*) FROM troupe.sagas"))
}
