package timeline

import (
	"cmp"
	"slices"
	"time"
)

// order finds the cause of each entry and sorts the entries: by time, but each one after its cause.
func (t *Timeline) order() {
	es := t.Entries
	messages := make(map[string][]int)
	for i := range es {
		if es[i].isMessage() && es[i].ID != "" {
			messages[es[i].ID] = append(messages[es[i].ID], i)
		}
	}
	for i := range es {
		es[i].Cause = causeOf(es, i, messages)
	}
	cutCircles(es)
	place := make([]position, len(es))
	for i := range es {
		place[i] = positionOf(es, i, place)
	}
	sorted := make([]int, len(es))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Or(place[a].at.Compare(place[b].at), cmp.Compare(place[a].depth, place[b].depth),
			cmp.Compare(es[a].topic(), es[b].topic()))
	})
	now := make([]int, len(es)) // the new index of each entry
	for to, from := range sorted {
		now[from] = to
	}
	all := make([]Entry, len(es))
	for i, e := range es {
		if e.Cause >= 0 {
			e.After = e.At.Sub(es[e.Cause].At)
			e.Cause = now[e.Cause]
		}
		all[now[i]] = e
	}
	t.Entries = all
}

// causeOf returns the index of the message that entry i follows from, or -1. A redriven message occurs several times with the
// same id: an answer follows from the last one before it.
func causeOf(es []Entry, i int, messages map[string][]int) int {
	e := &es[i]
	best := -1
	if !e.isMessage() {
		for _, c := range messages[e.ID] {
			same := es[c].identity == e.identity
			if best < 0 || same && (es[c].Redrive == e.Redrive || es[best].identity != e.identity) {
				best = c
			}
		}
		return best
	}
	if e.CausationID == "" {
		return -1
	}
	for _, c := range messages[e.CausationID] {
		switch {
		case c == i:
		case best < 0, es[c].At.After(e.At) == es[best].At.After(e.At) && es[c].Redrive > es[best].Redrive,
			!es[c].At.After(e.At) && es[best].At.After(e.At):
			best = c
		}
	}
	return best
}

// cutCircles removes a cause from each cycle, which ids that are set by hand may form.
func cutCircles(es []Entry) {
	const unknown, under, fine = 0, 1, 2
	state := make([]int, len(es))
	for i := range es {
		var way []int
		for at := i; at >= 0 && state[at] != fine; at = es[at].Cause {
			if state[at] == under {
				es[at].Cause = -1
				break
			}
			state[at] = under
			way = append(way, at)
		}
		for _, at := range way {
			state[at] = fine
		}
	}
}

type position struct {
	at    time.Time
	depth int // number of steps from a beginning, counted from 1
}

// positionOf returns a position that is not before the cause's position. It computes the causes first.
func positionOf(es []Entry, i int, known []position) position {
	var way []int
	for at := i; at >= 0 && known[at].depth == 0; at = es[at].Cause {
		way = append(way, at)
	}
	for _, at := range slices.Backward(way) {
		p := position{es[at].At, 1}
		if c := es[at].Cause; c >= 0 {
			p.depth = known[c].depth + 1
			if p.at.Before(known[c].at) {
				p.at = known[c].at
			}
		}
		known[at] = p
	}
	return known[i]
}
