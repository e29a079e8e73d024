package coordinator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
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
		causes := make(map[emission]*envelope.Cause)
		for _, d := range ds {
			var m envelope.Message
			envelope.CauseOf(follow(envelope.WithCause(context.Background(), cause), d, nil, causes)).Apply(&m)
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
