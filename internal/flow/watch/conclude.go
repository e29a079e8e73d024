package watch

import (
	"cmp"
	"container/heap"
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
	var ready earliest // messages whose cause is already in sorted
	add := func(i int) { heap.Push(&ready, entry{f.Messages[i].WrittenAt, ready.pushed, i}) }
	for _, i := range roots {
		add(i)
	}
	for ready.Len() > 0 {
		m := f.Messages[heap.Pop(&ready).(entry).message]
		m.Cause = -1
		if at, seen := place[m.causation]; seen {
			m.Cause = at
		}
		if _, seen := place[m.id]; !seen {
			place[m.id] = len(sorted)
			for _, i := range byCause[m.id] {
				add(i)
			}
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

// earliest is a heap of messages, the earliest first: of several of one time, the one that was pushed first.
type earliest struct {
	entries []entry
	pushed  int
}

type entry struct {
	at              time.Time
	pushed, message int // the number of entries that were pushed before, and the index of the message
}

func (e *earliest) Len() int { return len(e.entries) }

func (e *earliest) Less(i, j int) bool {
	a, b := e.entries[i], e.entries[j]
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.pushed, b.pushed)) < 0
}

func (e *earliest) Swap(i, j int) { e.entries[i], e.entries[j] = e.entries[j], e.entries[i] }

func (e *earliest) Push(x any) {
	e.entries = append(e.entries, x.(entry))
	e.pushed++
}

func (e *earliest) Pop() any {
	last := len(e.entries) - 1
	x := e.entries[last]
	e.entries = e.entries[:last]
	return x
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
	of := make(map[message][]int)
	for i, m := range f.Messages {
		of[message{m.Topic, m.Type}] = append(of[message{m.Topic, m.Type}], i)
		byCause[heard{message{m.Topic, m.Type}, m.causation, ""}] = true
		byKey[heard{message{m.Topic, m.Type}, uuid.Nil, m.Key}] = true
	}
	for _, r := range rules {
		var begun []int
		for _, on := range r.on {
			begun = append(begun, of[on]...)
		}
		slices.Sort(begun)
		for _, i := range begun {
			m := f.Messages[i]
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
	answered := make(map[uuid.UUID]time.Time) // the time of the last answer to a message
	for _, m := range f.Messages {
		if m.Kind == topics.Events && m.Outcome != envelope.Exhausted && m.At.After(answered[m.causation]) {
			answered[m.causation] = m.At
		}
	}
	return slices.ContainsFunc(f.Messages, func(m Message) bool {
		return m.Kind == topics.DeadLetters && !answered[m.causation].After(m.At)
	})
}
