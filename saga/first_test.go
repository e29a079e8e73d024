package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestTheFirstCallWhoseResultIsUnknown checks which call's key a retry has at services outside.
func TestTheFirstCallWhoseResultIsUnknown(t *testing.T) {
	d := travelling(t)
	at := func(e saga.Event, epoch int) saga.Event { e.Epoch = epoch; return e }
	lost, undoLost := answer("hotel", "forward", "exhausted", "Exhausted", nil), answer("hotel", "compensate", "exhausted", "Exhausted", nil)
	again := saga.Event{Kind: saga.ActRetry, Step: "hotel"}
	walk := saga.Event{Kind: saga.ActSet, Fields: map[string]any{"walks": true}}
	unusable := answer("hotel", "forward", "success", "Whatever", nil)
	noUndo := answer("hotel", "compensate", "failure", "No", nil)
	back := []saga.Event{begun, refused, bookedTrip}
	for name, test := range map[string]struct {
		events       []saga.Event
		epoch, first int
	}{
		"the first":                                {[]saga.Event{begun}, 0, 0},
		"given up":                                 {[]saga.Event{begun, lost, again}, 1, 0},
		"given up twice":                           {[]saga.Event{begun, lost, again, at(lost, 1), again}, 2, 0},
		"with an answer that cannot be used":       {[]saga.Event{begun, unusable, again}, 1, 0},
		"with another variable":                    {[]saga.Event{begun, lost, walk, again}, 1, 1},
		"with another variable, set while it ran":  {[]saga.Event{begun, walk, lost, again}, 1, 1},
		"a compensation with another variable":     {append(back[:3:3], walk, undoLost, again), 1, 1},
		"given up again with another variable":     {[]saga.Event{begun, lost, walk, again, at(lost, 1), again}, 2, 1},
		"a compensation that was given up":         {append(back[:3:3], undoLost, again), 1, 0},
		"a compensation that was refused":          {append(back[:3:3], noUndo, again), 1, 1},
		"a compensation that did not happen":       {append(back[:3:3], undoLost, saga.Event{Kind: saga.ActResolve, Step: "hotel"}), 1, 1},
		"a compensation that was refused and lost": {append(back[:3:3], noUndo, again, at(undoLost, 1), again), 2, 1},
	} {
		_, fx := history(t, d, test.events...)
		sends := fx.Commands
		if name == "the first" {
			sends = sends[:1] // the insurance's is the second
		}
		require.Len(t, sends, 1, name)
		require.Equal(t, []int{test.epoch, test.first}, []int{sends[0].Epoch, sends[0].First}, name)
	}
}

// TestARetryAfterAMoveThatChangesTheInputIsAnotherRequest moves a saga, whose command or compensation was given up, to a definition that sends it
// with other values. A service outside refuses the key of an earlier request with another body.
func TestARetryAfterAMoveThatChangesTheInputIsAnotherRequest(t *testing.T) {
	lost, undoLost := answer("hotel", "forward", "exhausted", "Exhausted", nil), answer("hotel", "compensate", "exhausted", "Exhausted", nil)
	items := `"data":{"id":"string","walks":"bool","plate":"string"}`
	list := `"data":{"id":"string","walks":"bool","plate":"string","rooms":"any"}`
	each := strings.NewReplacer(items, list, `{"name":"hotel",`, `{"name":"hotel","forEach":{"list":"data.rooms","as":"room","max":3},`).Replace(travel)
	for name, test := range map[string]struct {
		from, old, with string
		events          []saga.Event
		step            string
		first           int
	}{
		"the same input":       {travel, `"hop":"car","type":"Rent"`, `"hop":"car","type":"Rent","input":{"id":"data.id"}`, []saga.Event{begun, lost}, "hotel", 0},
		"another input":        {travel, `"type":"Book"`, `"type":"Book","input":{"id":"data.id"}`, []saga.Event{begun, lost}, "hotel", 1},
		"of the compensation":  {travel, `"type":"Cancel"`, `"type":"Cancel","input":{"id":"data.id"}`, []saga.Event{begun, refused, bookedTrip, undoLost}, "hotel", 1},
		"another input's undo": {travel, `"type":"Book"`, `"type":"Book","input":{"id":"data.id"}`, []saga.Event{begun, refused, bookedTrip, undoLost}, "hotel", 0},
		"of an item": {each, `"type":"Book"`, `"type":"Book","input":{"id":"data.id"}`, []saga.Event{
			{Kind: saga.Started, Fields: map[string]any{"id": "1", "rooms": []any{"a"}}}, answer("hotel[0]", "forward", "exhausted", "Exhausted", nil)}, "hotel[0]", 1},
	} {
		from, err := saga.Parse([]byte(test.from))
		require.NoError(t, err)
		to, err := saga.Parse([]byte(strings.Replace(strings.Replace(test.from, `"version":1`, `"version":2`, 1), test.old, test.with, 1)))
		require.NoError(t, err)
		s, _ := history(t, from, test.events...)
		s, err = saga.Migrate(from, to, s)
		require.NoError(t, err, name)
		_, fx := saga.Decide(to, s, saga.Event{Kind: saga.ActRetry, Step: test.step, Actor: "ann", Reason: "moved"}, time.Unix(2000, 0))
		require.Len(t, fx.Commands, 1, "%s: %s", name, fx.Refused)
		require.Equal(t, []int{1, test.first}, []int{fx.Commands[0].Epoch, fx.Commands[0].First}, name)
	}
}
