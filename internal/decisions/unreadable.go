package decisions

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// An unreadableDefinition has the readable parts of a stored definition that this program cannot parse, as one of a newer program. Its
// Awaited makes the events that its sagas wait for an error. Otherwise these events would be ignored, and the sagas would wait for
// ever.
type unreadableDefinition struct {
	Saga    string
	Awaited []saga.Answer
	Stash   time.Duration
	Idle    bool // no saga under way has the definition, as in Definitions.idle
}

// readAwaited reads only the fields that unreadableDefinition needs, so that it also reads a text that saga.Parse refuses. It leaves
// out parts that it cannot read.
func readAwaited(text string) (d unreadableDefinition) {
	type event struct {
		Event string
		Hop   string
		By    *saga.Association
	}
	var read struct {
		Saga  string
		Stash json.RawMessage
		Steps []struct {
			Command, Call    json.RawMessage
			Success, Failure []event
		}
		Cancel struct{ Events []event }
	}
	_ = json.Unmarshal([]byte(text), &read)
	var stash saga.Duration
	_ = json.Unmarshal(read.Stash, &stash)
	d.Saga, d.Stash = read.Saga, cmp.Or(time.Duration(stash), defaultStash)
	add := func(events []event) {
		for _, e := range events {
			d.Awaited = append(d.Awaited, saga.Answer{Event: e.Event, Hop: e.Hop, By: e.By})
		}
	}
	for _, st := range read.Steps {
		if st.Command == nil && st.Call == nil { // a step with a command gets answers, which have the saga's id
			add(st.Success)
			add(st.Failure)
		}
	}
	add(read.Cancel.Events)
	return d
}
