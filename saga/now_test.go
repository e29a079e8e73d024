package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// loan reads the time of each decision in every kind of expression that may.
const loan = `{"saga":"loan","version":1,"key":"id","data":{"id":"string","begun":"string","due":"string","any":"any"},
 "start":[{"hop":"desk","event":"Asked","when":"now < timestamp(event.until)","set":{"id":"event.id","begun":"string(now)","any":"now"}}],
 "steps":[{"name":"check","command":{"hop":"bank","type":"Check","input":{"at":"now","hour":"now.getHours('Europe/Berlin')"}},
   "success":[{"event":"Checked","when":"now < timestamp(data.begun) + duration('1h')","set":{"due":"string(now + duration('24h'))"}}],
   "failure":[{"event":"Refused"}],"timeout":"3h","irreversible":"it only reads"}],
 "deadlines":[{"name":"ask","after":"2h","until":["check"],"payload":{"armed":"now"},"emit":[{"event":"Late","input":{"armed":"deadline.armed","fired":"now"}}]}],
 "completed":[{"event":"LoanGiven","input":{"at":"now"}}]}`

func TestExpressionsReadTheTimeOfTheDecision(t *testing.T) {
	d := parse(t, loan)
	sagatest.Verify(t, d)
	at := func(after time.Duration) string { return sagatest.Start.Add(after).UTC().Format(time.RFC3339) }
	f := sagatest.New(t, d)
	f.WhenPublished(sagatest.Event("desk", "Asked", "l-0", sagatest.Fields{"id": "l-0", "until": at(0)})).ThenNothing()
	f.WhenPublished(sagatest.Event("desk", "Asked", "l-1", sagatest.Fields{"id": "l-1", "until": at(time.Minute)}))
	hour := sagatest.Start.In(time.FixedZone("", 3600)).Hour() // Berlin in winter
	require.Equal(t, time.January, sagatest.Start.Month())
	f.ThenCommands(sagatest.Command{Type: "Check", Fields: sagatest.Fields{"at": at(0), "hour": hour}})
	f.ThenData("loan/l-1", sagatest.Fields{"begun": at(0), "any": at(0)})
	f.WhenTimePasses(30 * time.Minute)
	f.WhenPublished(sagatest.Success("check", "Checked", nil))
	f.ThenData("loan/l-1", sagatest.Fields{"due": at(24*time.Hour + 30*time.Minute)})
	f.ThenEvents(sagatest.Emitted{Type: "LoanGiven", Fields: sagatest.Fields{"at": at(30 * time.Minute)}})

	f.WhenPublished(sagatest.Event("desk", "Asked", "l-2", sagatest.Fields{"id": "l-2", "until": at(time.Hour)}))
	f.WhenTimePasses(2 * time.Hour)
	f.ThenEvents(sagatest.Emitted{Type: "Late", Fields: sagatest.Fields{"armed": at(30 * time.Minute), "fired": at(150 * time.Minute)}})
	f.WhenPublished(sagatest.Success("check", "Checked", nil)) // later than an hour
	f.ThenStatus("loan/l-2", saga.Parked)
}

func TestADecisionOfTheSameTimeReadsTheSameNow(t *testing.T) {
	d := parse(t, loan)
	fold := func(zone *time.Location) (s saga.State, fx saga.Effects) {
		at := time.Date(2026, 3, 29, 0, 59, 59, 123456789, time.UTC)
		s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "l-1", "begun": at.Format(time.RFC3339)}}, at.In(zone))
		return saga.Decide(d, s, answer("check", "forward", "success", "Checked", nil), at.Add(time.Second).In(zone))
	}
	s, fx := fold(time.UTC)
	require.Equal(t, "2026-03-30T01:00:00.123456Z", s.Data["due"])
	again, same := fold(time.FixedZone("", 3600))
	require.Equal(t, s, again)
	require.Equal(t, fx, same)
}

func TestWhereAnExpressionCannotReadNow(t *testing.T) {
	for _, c := range []struct{ spec, path, text string }{
		{`{"saga":"a","version":1,"key":"now","data":{"now":"string"}}`, "data.now", "want another name"},
		{`{"saga":"a","version":1,"key":"id","data":{"id":"string"},"lock":"string(now)"}`, "lock", "cannot depend on now"},
		{`{"saga":"a","version":1,"key":"id","data":{"id":"string","l":"any"},"steps":[{"name":"s","forEach":{"list":"data.l","as":"now","max":2},
		   "command":{"hop":"h","type":"T"},"success":[{"event":"E"}]}]}`, "steps[0].forEach.as", "reserved"},
		{`{"saga":"a","version":1,"key":"id","data":{"id":"string","n":"int"},"steps":[{"name":"s",
		   "command":{"hop":"h","type":"T"},"success":[{"event":"E","set":{"n":"now"}}]}]}`, "steps[0].success[0].set.n", "Timestamp, want int"},
	} {
		_, err := saga.Parse([]byte(c.spec))
		var mistakes saga.Mistakes
		require.ErrorAs(t, err, &mistakes)
		require.Equal(t, c.path, mistakes[0].Path)
		require.Contains(t, mistakes[0].Text, c.text)
	}
}
