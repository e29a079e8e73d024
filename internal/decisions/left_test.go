package decisions

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnEventThatAnEndedSagaLeavesIsForOneWithAnotherLock: the sagas of one guest have locks of their own, so they run at once.
func TestAnEventThatAnEndedSagaLeavesIsForOneWithAnotherLock(t *testing.T) {
	for name, lock := range map[string]string{"another lock": "data.id", "no lock": "''"} {
		t.Run(name, func(t *testing.T) {
			m, start, arrive, reserve := visit(t, fmt.Sprintf(`,"lock":%q`, lock))
			start("v-1")
			arrive("m-1")
			arrive("m-2")
			start("v-2")
			reserve("v-2")
			reserve("v-1")
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}

// TestASagaEndsAlthoughAnotherOneHasNoRoomForAnEventThatItLeaves: the event is tried again by itself, and then becomes a dead letter.
func TestASagaEndsAlthoughAnotherOneHasNoRoomForAnEventThatItLeaves(t *testing.T) {
	m, start, arrive, _ := visit(t, "")
	start("v-1")
	arrive("m-1") // only v-1 gets it
	start("v-2")
	for i := range 64 {
		arrive(fmt.Sprint("n-", i))
	}
	require.Len(t, m.Sagas()[1].Early, 64)
	var again []string
	require.NoError(t, m.pass(func(p *pass) error {
		_, err := p.act(context.Background(), "visit/v-1", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "wrong guest"})
		for _, r := range p.retries {
			again = append(again, r.id+" "+r.event.Message)
		}
		return err
	}))
	require.Equal(t, saga.Abandoned, m.Sagas()[0].Status)
	require.Equal(t, []string{"visit/v-2 m-1"}, again)
}
