package watch

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// TestAFlowOfManyMessagesIsConcluded takes more than the time limit of the tests if each message is compared with each other one: a service
// may send all of its messages with one correlation id, and a page of flows reads up to 100,000 of them.
func TestAFlowOfManyMessagesIsConcluded(t *testing.T) {
	t.Parallel()
	const messages = 300_000
	f := &Flow{Messages: make([]Message, messages)}
	parked, _ := identity([]byte("parked"))
	other, _ := identity([]byte("other"))
	for i := range f.Messages {
		m := Message{ID: strconv.Itoa(i), Kind: topics.Events, causation: other, WrittenAt: time.Unix(int64(i), 0), At: time.Unix(int64(i), 0)}
		if i%2 == 0 {
			m.Kind, m.causation = topics.DeadLetters, parked
		}
		m.id, _ = identity([]byte(m.ID))
		f.Messages[i] = m
	}
	f.Messages[messages-1].causation = parked // the last one is the answer to all dead letters
	f.order()
	f.conclude(nil, time.Unix(messages, 0))
	require.Equal(t, messages, f.Count)
	require.Equal(t, Completed, f.Status)
	require.True(t, slices.IsSortedFunc(f.Messages, func(a, b Message) int { return a.WrittenAt.Compare(b.WrittenAt) }))
}

// TestMessagesOfAFlowAreOrdered compares with a search of the earliest message among all that may be next.
func TestMessagesOfAFlowAreOrdered(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := &Flow{}
		for i := range 1 + r.IntN(12) {
			m := Message{ID: strconv.Itoa(i), WrittenAt: time.Unix(int64(r.IntN(8)), 0)}
			m.id, _ = identity([]byte(m.ID))
			if cause := r.IntN(14); cause != i {
				m.causation, _ = identity([]byte(strconv.Itoa(cause)))
			}
			f.Messages = append(f.Messages, m)
		}
		want := searched(f.Messages)
		f.order()
		var got []string
		for k, m := range f.Messages {
			got = append(got, m.ID)
			if m.Cause >= 0 {
				require.Less(t, m.Cause, k)
				require.Equal(t, m.causation, f.Messages[m.Cause].id)
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// searched returns the ids of messages in their order.
func searched(all []Message) (order []string) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Message) int { return a.WrittenAt.Compare(b.WrittenAt) })
	known := func(id uuid.UUID) bool { return slices.ContainsFunc(all, func(m Message) bool { return m.id == id }) }
	var sorted, ready, left []Message
	for _, m := range all {
		if known(m.causation) {
			left = append(left, m)
		} else {
			ready = append(ready, m)
		}
	}
	for len(ready) > 0 {
		next := slices.MinFunc(ready, func(a, b Message) int { return a.WrittenAt.Compare(b.WrittenAt) })
		ready = slices.DeleteFunc(ready, func(m Message) bool { return m.ID == next.ID })
		sorted = append(sorted, next)
		for _, m := range left {
			if m.causation == next.id {
				ready = append(ready, m)
			}
		}
	}
	if len(sorted) < len(all) { // the causes form a cycle
		sorted = all
	}
	for _, m := range sorted {
		order = append(order, m.ID)
	}
	return order
}

func TestAFlowIsParkedUntilItsDeadLetterIsAnswered(t *testing.T) {
	t.Parallel()
	about, _ := identity([]byte("about"))
	letter := Message{Kind: topics.DeadLetters, causation: about, At: time.Unix(10, 0)}
	event := func(at int64, outcome envelope.Outcome) Message {
		return Message{Kind: topics.Events, causation: about, At: time.Unix(at, 0), Outcome: outcome}
	}
	for _, c := range []struct {
		name   string
		others []Message
		parked bool
	}{
		{"no answer", nil, true},
		{"exhausted", []Message{event(11, envelope.Exhausted)}, true},
		{"answered before", []Message{event(9, envelope.Success)}, true},
		{"answered", []Message{event(9, envelope.Success), event(12, envelope.Success), event(11, envelope.Failure)}, false},
		{"a command", []Message{{Kind: topics.Commands, causation: about, At: time.Unix(12, 0)}}, true},
	} {
		f := &Flow{Messages: append([]Message{letter}, c.others...)}
		require.Equal(t, c.parked, f.parked(), c.name)
	}
}
