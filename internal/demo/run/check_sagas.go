package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// checkReplay checks that every order has its saga, and that replaying the saga's log gives its stored state.
func (f *facts) checkReplay(v *verdict) {
	equal := 0
	for id, row := range f.sagas {
		switch again, err := f.replay(row); {
		case err != nil:
			v.complain("%s: %v", id, err)
		case !again:
			v.complain("%s: its log gives another state", id)
		default:
			equal++
		}
	}
	v.equal("%d sagas", len(f.orders), equal)
}

// replay reports whether replaying the saga's log gives its row.
func (f *facts) replay(row sagaRow) (same bool, err error) {
	d := f.definitions[row.Definition]
	if d == nil {
		return false, fmt.Errorf("its definition %.12s is not stored", row.Definition)
	}
	stored, err := d.ReadState(row.State)
	if err != nil {
		return false, err
	}
	var s saga.State
	for _, r := range f.logs[row.ID] {
		e, err := saga.ReadEvent(r.Event)
		if err != nil {
			return false, fmt.Errorf("event %d: %w", r.Version, err)
		}
		s, _ = saga.Decide(d, s, e, r.At)
	}
	want, err := json.Marshal(stored)
	if err != nil {
		return false, err
	}
	got, err := json.Marshal(s)
	return bytes.Equal(want, got), err
}

// checkLogs checks that a saga's log has one entry for each of its versions, and that every log has a saga.
func (f *facts) checkLogs(v *verdict) {
	want, got := 0, 0
	for id, row := range f.sagas {
		want += row.Version
		for n := 1; n <= row.Version; n++ {
			if !slices.ContainsFunc(f.logs[id], func(e eventRow) bool { return e.Version == n }) {
				v.complain("%s lacks entry %d", id, n)
			}
		}
	}
	for id, log := range f.logs {
		got += len(log)
		if extra := len(log) - f.sagas[id].Version; extra > 0 {
			v.complain("%s has %d entries more than its version", id, extra)
		}
	}
	v.equal("%d decisions", want, got)
}

// checkSagaDeadlines checks that no deadline is left of a saga that has ended.
func (f *facts) checkSagaDeadlines(v *verdict) {
	f.checkDeadlines(v, func(id string) bool { row, there := f.sagas[id]; return there && !row.Ended })
}

func (f *facts) checkDeadlines(v *verdict, running func(id string) bool) {
	for _, id := range f.deadlines {
		if !running(id) {
			v.complain("%s", id)
		}
	}
	v.none()
}
