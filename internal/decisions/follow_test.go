package decisions

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/saga"
)

// TestTheIdsOfASagasMessagesDoNotDependOnOtherSagas decides on one message for two sagas, and again for the second one only, as
// if the first had been lost. Its event that had come early and its repeated ones are part of it.
func TestTheIdsOfASagasMessagesDoNotDependOnOtherSagas(t *testing.T) {
	decided := func(id, message string) Decided {
		return Decided{ID: id, Event: saga.Event{Message: message}, State: saga.State{Correlation: "c", Version: 2}}
	}
	ids := func(ds ...Decided) (all []string) {
		cause := &envelope.Cause{Handler: "order/events", Message: envelope.Message{ID: "m-1", Source: "post"}}
		causes := make(map[causeKey]*envelope.Cause)
		for _, d := range ds {
			var m envelope.Message
			envelope.CauseOf(follow(envelope.WithCause(context.Background(), cause), d, outbox.Entry{Topic: "post.events", Type: "Sent"}, "", nil, causes)).Apply(&m)
			require.NotContains(t, all, m.ID)
			all = append(all, m.ID)
		}
		return all
	}
	all := ids(decided("trip/a", "m-1"), decided("trip/b", "m-1"), decided("trip/b", "m-0"), decided("trip/b", "m-1"))
	require.Equal(t, all[1:], ids(decided("trip/b", "m-1"), decided("trip/b", "m-0"), decided("trip/b", "m-1")))
	require.NotEqual(t, all[0], all[1])

	called := decided("trip/a", "")
	called.Message = -1
	other := called
	other.ID = "trip/b"
	require.Len(t, ids(called, other), 2)
}

// TestTheIDOfACommandDoesNotDependOnTheOthersOfItsDecision: after a set back a message leads to some of the commands only.
func TestTheIDOfACommandDoesNotDependOnTheOthersOfItsDecision(t *testing.T) {
	cause := &envelope.Cause{Handler: "order/events", Message: envelope.Message{ID: "m-1", Source: "post"}}
	for _, message := range []int{0, -1} {
		ids := func(commands ...string) (all []string) {
			causes := make(map[causeKey]*envelope.Cause)
			d := Decided{Message: message, ID: "trip/a", Event: saga.Event{Message: "m-1"}, State: saga.State{Correlation: "c", Version: 2}}
			for _, key := range commands {
				var m envelope.Message
				ctx := follow(envelope.WithCause(context.Background(), cause), d, outbox.Entry{IdempotencyKey: key}, "", nil, causes)
				envelope.CauseOf(ctx).Apply(&m)
				all = append(all, m.ID)
			}
			return all
		}
		both := ids("trip/a/fast/forward/0", "trip/a/slow/forward/0")
		require.NotEqual(t, both[0], both[1])
		require.Equal(t, both[1:], ids("trip/a/slow/forward/0"))
	}
}

// TestTheIDOfAnEventDoesNotDependOnTheOthersOfItsDecision: two deadlines emit events of one type, once in one decision and once in two, as if
// the database had been set back meanwhile.
func TestTheIDOfAnEventDoesNotDependOnTheOthersOfItsDecision(t *testing.T) {
	ids := func(paths ...string) (all []string) {
		causes := make(map[causeKey]*envelope.Cause)
		d := Decided{Message: -1, ID: "trip/a", State: saga.State{Correlation: "c", Version: 2}}
		for _, path := range paths {
			m := envelope.Message{Topic: "trip.trip.events", Type: "Reminded"}
			ctx := follow(context.Background(), d, outbox.Entry{Topic: m.Topic, Type: m.Type}, path, nil, causes)
			envelope.CauseOf(ctx).Apply(&m)
			all = append(all, m.ID)
		}
		return all
	}
	both := ids("deadlines.first.emit[0]", "deadlines.second.emit[0]")
	require.NotEqual(t, both[0], both[1])
	require.Equal(t, both[1:], ids("deadlines.second.emit[0]"))
}
