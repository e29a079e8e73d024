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

// TestASagaEndsAlthoughAnotherOneOfItsValueCannotBeRead: the event that it leaves is tried again for the other saga.
func TestASagaEndsAlthoughAnotherOneOfItsValueCannotBeRead(t *testing.T) {
	m, start, arrive, _ := visit(t, "")
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	older, newer := twoPrograms(t, m)
	m.definitions = newer
	start("v-2")
	m.definitions = older
	var again []string
	require.NoError(t, m.pass(func(p *pass) error {
		err := p.messages(context.Background(), []Message{
			{ID: "r-1", Hop: "rooms", Type: "Reserved", Key: "v-1", Outcome: "success", SagaID: "visit/v-1", SagaStep: "room"},
		})
		for _, r := range p.retries {
			again = append(again, r.id+" "+r.event.Message)
		}
		return err
	}))
	m.definitions = newer
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.Equal(t, []string{"visit/v-2 m-2"}, again)
}

// TestASagaThatAnotherProgramWakesGetsTheEventsThatItsLockLeft: the program that ends the first saga cannot read the definition of the
// second one, as in a rolling deployment. Another program handles the wake of the second saga.
func TestASagaThatAnotherProgramWakesGetsTheEventsThatItsLockLeft(t *testing.T) {
	m, start, arrive, reserve := visit(t, `,"lock":"data.guest"`)
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	older, newer := twoPrograms(t, m)
	m.definitions = newer
	start("v-2")
	m.definitions = older
	reserve("v-1")
	m.definitions = newer
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.Equal(t, saga.Waiting, m.Sagas()[1].Status)
	require.NoError(t, m.pass(func(p *pass) error { return p.due(context.Background(), -1, "visit/v-2") }))
	reserve("v-2")
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
}

// twoPrograms returns the definitions of two programs. The newer one starts sagas of another version, which the older one cannot read.
func twoPrograms(t *testing.T, m *Memory) (older, newer *Definitions) {
	t.Helper()
	d := m.definitions.Current("visit")
	spec := d.Spec()
	spec.Version = 2
	next, err := saga.Define(spec)
	require.NoError(t, err)
	newer, err = NewDefinitions([]*saga.Definition{next})
	require.NoError(t, err)
	newer.Add(d.Hash(), d)
	older, err = NewDefinitions([]*saga.Definition{d})
	require.NoError(t, err)
	older.Find = func(context.Context, string) (*saga.Definition, error) { return nil, ErrNoDefinition }
	return older, newer
}
