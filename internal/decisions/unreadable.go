package decisions

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// An unreadableDefinition has the parts that this program can read of a stored definition that it cannot parse, as one of a newer program:
// the events that its sagas wait for. Without it these events would be ignored, and the sagas would wait for ever.
type unreadableDefinition struct {
	Saga    string
	Awaited []saga.Answer
	Stash   time.Duration
	Idle    bool // as Definitions.idle
}

// readAwaited reads of the text of a definition only the fields that it needs, so that it also reads texts that saga.Parse refuses. Parts that
// it cannot read either are left out.
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
		if st.Command == nil && st.Call == nil { // else it is answered, and answers have the saga's id
			add(st.Success)
			add(st.Failure)
		}
	}
	add(read.Cancel.Events)
	return d
}
