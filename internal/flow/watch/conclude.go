package watch

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// fold keeps each message once, and counts its repetitions.
func (f *Flow) fold() {
	first := make(map[[2]string]int)
	once := f.Messages[:0]
	for _, m := range f.Messages {
		if at, seen := first[[2]string{m.Topic, m.ID}]; seen {
			once[at].Repeats++
			continue
		}
		first[[2]string{m.Topic, m.ID}] = len(once)
		once = append(once, m)
	}
	f.Messages = once
}

// order sorts the messages by time, but each one after its cause, since clocks disagree.
func (f *Flow) order() {
	slices.SortStableFunc(f.Messages, func(a, b Message) int { return a.WrittenAt.Compare(b.WrittenAt) })
	byCause := make(map[uuid.UUID][]int)
	index := make(map[uuid.UUID]int)
	for i, m := range f.Messages {
		if _, known := index[m.id]; !known {
			index[m.id] = i
		}
	}
	var roots []int
	for i, m := range f.Messages {
		if cause, seen := index[m.causation]; seen && cause != i {
			byCause[m.causation] = append(byCause[m.causation], i)
		} else {
			roots = append(roots, i)
		}
	}
	sorted := make([]Message, 0, len(f.Messages))
	place := make(map[uuid.UUID]int)
	waiting := roots // messages whose cause is already in sorted
	for len(waiting) > 0 {
		first := 0
		for k, i := range waiting {
			if f.Messages[i].WrittenAt.Before(f.Messages[waiting[first]].WrittenAt) {
				first = k
			}
		}
		m := f.Messages[waiting[first]]
		waiting = slices.Delete(waiting, first, first+1)
		m.Cause = -1
		if at, seen := place[m.causation]; seen {
			m.Cause = at
		}
		if _, seen := place[m.id]; !seen {
			place[m.id] = len(sorted)
			waiting = append(waiting, byCause[m.id]...)
		}
		sorted = append(sorted, m)
	}
	if len(sorted) == len(f.Messages) { // ids that are set by hand may form a cycle
		f.Messages = sorted
		return
	}
	for i := range f.Messages {
		f.Messages[i].Cause = -1
	}
}

// conclude computes the status of the flow.
func (f *Flow) conclude(rules []rule, now time.Time) {
	f.Count = len(f.Messages)
	if f.Count == 0 {
		return
	}
	f.Key, f.BeganAt, f.LastAt = f.Messages[0].Key, f.Messages[0].At, f.Messages[0].At
	refused := false
	for _, m := range f.Messages {
		if m.At.Before(f.BeganAt) {
			f.BeganAt = m.At
		}
		if m.At.After(f.LastAt) {
			f.LastAt = m.At
		}
		refused = refused || m.Outcome == envelope.Failure
	}
	f.wait(rules, now)
	open := slices.ContainsFunc(f.Findings, func(one Finding) bool { return one.Kind != Late })
	switch {
	case f.parked():
		f.Status = Parked
	case open:
		f.Status = Deviant
	case len(f.Waiting) > 0:
		f.Status = UnderWay
	case refused:
		f.Status = Compensated
	default:
		f.Status = Completed
	}
}

// wait lists the answers that may still arrive in time. An answer that is overdue is a finding instead.
func (f *Flow) wait(rules []rule, now time.Time) {
	type heard struct {
		message
		cause uuid.UUID
		key   string
	}
	byCause, byKey := make(map[heard]bool), make(map[heard]bool)
	for _, m := range f.Messages {
		byCause[heard{message{m.Topic, m.Type}, m.causation, ""}] = true
		byKey[heard{message{m.Topic, m.Type}, uuid.Nil, m.Key}] = true
	}
	for _, r := range rules {
		for i, m := range f.Messages {
			if !slices.Contains(r.on, message{m.Topic, m.Type}) {
				continue
			}
			came := slices.ContainsFunc(r.answers, func(a message) bool {
				if r.byKey {
					return byKey[heard{a, uuid.Nil, m.Key}]
				}
				return byCause[heard{a, m.id, ""}]
			})
			if until := m.At.Add(r.within); !came && until.After(now) {
				f.Waiting = append(f.Waiting, Waiting{Message: i, Text: r.String(), Until: until})
			}
		}
	}
}

// parked reports whether there is a dead letter whose message was not answered after it.
func (f *Flow) parked() bool {
	for _, letter := range f.Messages {
		if letter.Kind != topics.DeadLetters {
			continue
		}
		answered := slices.ContainsFunc(f.Messages, func(m Message) bool {
			return m.Kind == topics.Events && m.causation == letter.causation && m.At.After(letter.At) && m.Outcome != envelope.Exhausted
		})
		if !answered {
			return true
		}
	}
	return false
}
