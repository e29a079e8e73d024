package decisions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestASagaEndsAlthoughAnotherOneOfItsValueCannotBeRead: the other saga gets the event that the first one leaves when a program runs that can
// read it.
func TestASagaEndsAlthoughAnotherOneOfItsValueCannotBeRead(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	older, newer := twoPrograms(t, m)
	m.definitions = newer
	start("v-2")
	reserve("v-2")
	m.definitions = older
	p := older.begin(m)
	require.NoError(t, p.messages(context.Background(), []Message{
		{ID: "r-1", Hop: "rooms", Type: "Reserved", Key: "v-1", Outcome: "success", SagaID: "visit/v-1", SagaStep: "room"},
	}))
	_, err := p.end(context.Background())
	require.NoError(t, err)
	require.Equal(t, []search{{by: Association{"visit", "guest", "g-1"}}}, p.search)
	p = older.begin(m)
	require.NoError(t, p.searchStash(context.Background(), search{by: Association{"visit", "guest", "g-1"}}))
	require.Equal(t, []search{{id: "visit/v-2"}}, p.search)
	m.definitions = newer
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.NoError(t, m.pass(func(p *pass) error { return p.searchStash(context.Background(), search{id: "visit/v-2"}) }))
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
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
	require.NoError(t, m.pass(func(p *pass) error { return p.due(context.Background(), "visit/v-2") }))
	reserve("v-2")
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
}

// TestAnEventThatAStepHasUsedIsNotKeptForALaterStep: one step has kept the event by the seller, and another one uses it by the buyer, who is set
// later.
func TestAnEventThatAStepHasUsedIsNotKeptForALaterStep(t *testing.T) {
	m := memoryOf(t, `{"saga":"trade","version":1,"key":"id","data":{"id":"string","seller":"string","buyer":"string"},"steps":[
 {"name":"check","command":{"hop":"market","type":"Check"},"success":[{"event":"Checked"}],"timeout":"1h","irreversible":"it reads"},
 {"name":"sold","needs":["check"],"success":[{"event":"Confirmed","hop":"bank","by":{"variable":"seller","field":"account"}}],"timeout":"24h"},
 {"name":"find","command":{"hop":"market","type":"Find"},"success":[{"event":"Found","set":{"buyer":"event.buyer"}}],"timeout":"1h","irreversible":"it reads"},
 {"name":"bought","success":[{"event":"Confirmed","hop":"bank","by":{"variable":"buyer","field":"account"}}],"timeout":"24h"}]}`)
	_, err := m.Start("trade", map[string]any{"id": "t-1", "seller": "a-1"})
	require.NoError(t, err)
	confirmed := Message{ID: "m-1", Hop: "bank", Type: "Confirmed", Key: "x", Fields: map[string]any{"account": "a-1"}}
	require.NoError(t, m.Take(confirmed))
	answer := func(step, event string, fields map[string]any) {
		require.NoError(t, m.Take(Message{ID: event, Hop: "market", Type: event, Key: "t-1", Outcome: "success", SagaID: "trade/t-1", SagaStep: step, Fields: fields}))
	}
	answer("find", "Found", map[string]any{"buyer": "a-1"})
	require.Equal(t, []saga.Phase{saga.Intent, saga.StepWaiting, saga.Done, saga.Done}, phases(m.Sagas()[0]))
	answer("check", "Checked", nil)
	require.Equal(t, []saga.Phase{saga.Done, saga.Intent, saga.Done, saga.Done}, phases(m.Sagas()[0]))
	confirmed.ID = "m-2"
	require.NoError(t, m.Take(confirmed))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestAnEventOfAnEarlierValueOfAVariableIsForTheNextSaga: an event is kept for a saga by a value that its variable does not have any more.
func TestAnEventOfAnEarlierValueOfAVariableIsForTheNextSaga(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	arrive("m-1")
	_, err := m.Act("visit/v-1", saga.Event{Kind: saga.ActSet, Fields: map[string]any{"guest": "g-2"}, Actor: "ann", Reason: "a wrong guest"})
	require.NoError(t, err)
	start("v-2")
	reserve("v-2")
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
	reserve("v-1")
	require.Equal(t, []saga.Phase{saga.Done, saga.Intent}, phases(m.Sagas()[0]))
	require.Empty(t, m.associated[Association{"visit", "guest", "g-1"}])
}

// TestAnEventThatAMovedSagaDoesNotAwaitAnyMoreIsForTheNextOne: the saga is moved to a version without the step for which it has kept the event. Another
// saga of that value runs on the earlier version.
func TestAnEventThatAMovedSagaDoesNotAwaitAnyMoreIsForTheNextOne(t *testing.T) {
	for name, second := range map[string]bool{"to one that runs": true, "to the next one": false} {
		t.Run(name, func(t *testing.T) {
			m, start, arrive, reserve := visit(t, "")
			start("v-1")
			arrive("m-1")
			if second {
				start("v-2")
			}
			moveTo(t, m, "visit/v-1", nextVersion(t, m, func(s *saga.Spec) { s.Steps = s.Steps[:1] }))
			reserve("v-1")
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			if !second {
				start("v-2")
			}
			reserve("v-2")
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}

// twoPrograms returns the definitions of two programs. The newer one starts sagas of another version, which the older one cannot read.
func twoPrograms(t *testing.T, m *Memory) (older, newer *Definitions) {
	t.Helper()
	d := m.definitions.Current("visit")
	newer, err := NewDefinitions([]*saga.Definition{nextVersion(t, m, func(*saga.Spec) {})})
	require.NoError(t, err)
	newer.Add(d.Hash(), d)
	older, err = NewDefinitions([]*saga.Definition{d})
	require.NoError(t, err)
	older.Find = func(context.Context, string) (*saga.Definition, error) { return nil, ErrNoDefinition }
	return older, newer
}

// stays is a definition with two steps behind the reservation that await events of the guest.
const stays = `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"},
 {"name":"departure","needs":["arrival"],"success":[{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`

// TestAnEventThatASagaLeavesIsNotForOneThatIgnoresIt: the other saga of that value has its arrival already.
func TestAnEventThatASagaLeavesIsNotForOneThatIgnoresIt(t *testing.T) {
	d, err := saga.Parse([]byte(stays))
	require.NoError(t, err)
	m, start, arrive, reserve := visitOf(t, d)
	start("v-1")
	arrive("m-1") // only v-1 gets it
	start("v-2")
	reserve("v-2")
	arrive("m-2")
	require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[1]))
	abandon(t, m, "visit/v-1")
	start("v-3")
	reserve("v-3")
	require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[2]))
}

// TestAMovedSagaLeavesAnEventThatItDoesNotAwaitAnyMore: the definition to which the saga is moved awaits another event of the guest.
func TestAMovedSagaLeavesAnEventThatItDoesNotAwaitAnyMore(t *testing.T) {
	d, err := saga.Parse([]byte(stays))
	require.NoError(t, err)
	m, start, arrive, reserve := visitOf(t, d)
	start("v-1")
	arrive("m-1")
	moveTo(t, m, "visit/v-1", nextVersion(t, m, func(s *saga.Spec) {
		s.Steps = []saga.Step{s.Steps[0], s.Steps[2]}
		s.Steps[1].Needs = []string{"room"}
	}))
	start("v-2")
	reserve("v-2")
	require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[1]))
}

// TestASagaThatAnotherProgramWakesUsesFirstWhatTheFormerOneLeft: its first step awaits an event, and the saga has kept a later one itself.
func TestASagaThatAnotherProgramWakesUsesFirstWhatTheFormerOneLeft(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"lock":"data.guest","cancel":{"operator":true},"steps":[
 {"name":"room","success":[{"event":"Ready","hop":"rooms","by":{"variable":"guest","field":"guest"}}],"timeout":"1h"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	m, start, arrive, _ := visitOf(t, d)
	start("v-1")
	arrive("m-1")
	older, newer := twoPrograms(t, m)
	spec := newer.Current("visit").Spec()
	spec.Steps = spec.Steps[1:]
	spec.Steps[0].Needs = nil
	next, err := saga.Define(spec)
	require.NoError(t, err)
	newer, err = NewDefinitions([]*saga.Definition{next})
	require.NoError(t, err)
	newer.Add(d.Hash(), d)
	m.definitions = newer
	start("v-2")
	arrive("m-2")
	m.definitions = older
	require.NoError(t, m.pass(func(p *pass) error {
		_, err := p.act(context.Background(), "visit/v-1", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "wrong guest"})
		return err
	}))
	m.definitions = newer
	require.NoError(t, m.pass(func(p *pass) error { return p.due(context.Background(), "visit/v-2") }))
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
	require.Equal(t, "m-1", m.Sagas()[1].Steps[0].Message)
}

// TestAnEventThatASagaLeavesIsNotForOneOfAnotherCoordinator: the other coordinator of the same database has a saga of that value, which does not
// exist for this one.
func TestAnEventThatASagaLeavesIsNotForOneOfAnotherCoordinator(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	arrive("m-1") // only v-1 gets it
	start("v-2")
	start("v-3")
	for _, id := range []string{"visit/v-2", "visit/v-3"} {
		r := m.records[id]
		r.Owner = "other"
		m.records[id] = r
	}
	arrive("m-2")
	abandon(t, m, "visit/v-1")
	start("v-4")
	reserve("v-4")
	require.Equal(t, saga.Completed, m.Sagas()[3].Status)
}

// TestAMovedSagaTakesAnEventThatCameBefore: the payment comes before the step that awaits it. In the definition to which the saga is moved, the
// step that waits now awaits the payment, too.
func TestAMovedSagaTakesAnEventThatCameBefore(t *testing.T) {
	const text = `{"saga":"order","version":%d,"key":"id","data":{"id":"string","account":"string"},"steps":[
  {"name":"open","success":[{"event":"Opened","hop":"shop"}%s]},
  {"name":"paid","needs":["open"],"success":[{"event":"Paid","hop":"bank"}]}]}`
	define := func(version int, more string) *saga.Definition {
		d, err := saga.Parse(fmt.Appendf(nil, text, version, more))
		require.NoError(t, err)
		return d
	}
	for more, want := range map[string][]saga.Phase{
		`,{"event":"Paid","hop":"bank"}`:                                               {saga.Done, saga.Intent},
		`,{"event":"Paid","hop":"cashier"}`:                                            {saga.Intent, saga.StepWaiting},
		`,{"event":"Paid","hop":"bank","by":{"variable":"account","field":"account"}}`: {saga.Intent, saga.StepWaiting},
	} {
		from, to := define(1, ""), define(2, more)
		m, err := NewMemory(time.Unix(1000, 0), from)
		require.NoError(t, err)
		m.definitions.Add(to.Hash(), to)
		_, err = m.Start("order", map[string]any{"id": "o-1", "account": "a-1"})
		require.NoError(t, err)
		require.NoError(t, m.Take(Message{ID: "m-1", Hop: "bank", Type: "Paid", Key: "o-1", Fields: map[string]any{"account": "a-2"}}))
		moveTo(t, m, "order/o-1", to)
		require.Equal(t, want, phases(m.Sagas()[0]), more)
		require.NoError(t, m.Take(Message{ID: "m-2", Hop: "shop", Type: "Opened", Key: "o-1"}))
		require.NoError(t, m.Take(Message{ID: "m-3", Hop: "bank", Type: "Paid", Key: "o-1"}))
		require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	}
}

// TestAnEventIsForTheNextSagaIfAProgramEndsItsSagaThatKnowsOnlyItsDefinition: an operator's program has loaded the definition to which
// the saga was moved, and which awaits no event.
func TestAnEventIsForTheNextSagaIfAProgramEndsItsSagaThatKnowsOnlyItsDefinition(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	arrive("m-1")
	coordinator := m.definitions
	moveTo(t, m, "visit/v-1", nextVersion(t, m, func(s *saga.Spec) { s.Steps = s.Steps[:1] }))
	var err error
	m.definitions, err = NewDefinitions(nil)
	require.NoError(t, err)
	m.definitions.Find = func(_ context.Context, hash string) (*saga.Definition, error) { return coordinator.byHash[hash], nil }
	abandon(t, m, "visit/v-1")
	m.definitions = coordinator
	start("v-2")
	reserve("v-2")
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
}

// TestAMovedSagaTakesAnEventThatItNowFindsByAnotherValue: the event was kept before the definition was known to which the saga is moved.
func TestAMovedSagaTakesAnEventThatItNowFindsByAnotherValue(t *testing.T) {
	m, start, _, reserve := visit(t, "")
	start("v-1")
	require.NoError(t, m.Take(Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "v-1", Fields: map[string]any{"guest": "g-1"}}))
	moveTo(t, m, "visit/v-1", nextVersion(t, m, func(s *saga.Spec) {
		s.Steps[1].Success = []saga.Answer{{Event: "Arrived", Hop: "door"}}
	}))
	reserve("v-1")
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestAnEventThatChangesItsVariableIsUsedOnce: the event has come before the saga, by the value that it changes.
func TestAnEventThatChangesItsVariableIsUsedOnce(t *testing.T) {
	m := memoryOf(t, `{"saga":"parcel","version":1,"key":"id","data":{"id":"string","number":"string"},"steps":[
 {"name":"forwarded","success":[{"event":"Forwarded","hop":"post","by":{"variable":"number","field":"number"},"set":{"number":"event.next"}}],"timeout":"24h"},
 {"name":"delivered","needs":["forwarded"],"success":[{"event":"Delivered","hop":"post","by":{"variable":"number","field":"number"}}],"timeout":"24h"}]}`)
	require.NoError(t, m.Take(Message{ID: "m-1", Hop: "post", Type: "Forwarded", Key: "x", Fields: map[string]any{"number": "p-1", "next": "p-2"}}))
	for _, id := range []string{"a", "b"} {
		_, err := m.Start("parcel", map[string]any{"id": id, "number": "p-1"})
		require.NoError(t, err)
	}
	require.Equal(t, []saga.Phase{saga.Done, saga.Intent}, phases(m.Sagas()[0]))
	require.Equal(t, []saga.Phase{saga.Intent, saga.StepWaiting}, phases(m.Sagas()[1]))
	require.Empty(t, m.stash)
}

// TestAnEventThatASagaLeavesIsUsedBeforeALaterOne: the end of the first saga and the later event come in one batch.
func TestAnEventThatASagaLeavesIsUsedBeforeALaterOne(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	start("v-2")
	reserve("v-2")
	takeBatch(t, m,
		Message{ID: "r-1", Hop: "rooms", Type: "Reserved", Key: "v-1", Outcome: "success", SagaID: "visit/v-1", SagaStep: "room"},
		Message{ID: "m-3", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}})
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
	require.Equal(t, "m-2", m.Sagas()[1].Steps[1].Message)
	require.Equal(t, []string{"m-3"}, kept(m, ""), "it is for the next saga")
}

// TestAMovedSagaThatEndsKeepsNoEvent: the saga was moved to a definition that awaits no event. The program that ends the saga does not know the
// former definition. A stashed event of the key would keep the ended saga from being removed.
func TestAMovedSagaThatEndsKeepsNoEvent(t *testing.T) {
	for name, by := range map[string]string{"of the key": "", "that two sagas got": `,"by":{"variable":"guest","field":"guest"}`} {
		t.Run(name, func(t *testing.T) {
			m := memoryOf(t, strings.NewReplacer("LOCK", "", `,"by":{"variable":"guest","field":"guest"}`, by).Replace(visits))
			for _, id := range []string{"v-1", "v-2"} {
				_, err := m.Start("visit", map[string]any{"id": id, "guest": "g-1"})
				require.NoError(t, err)
			}
			require.NoError(t, m.Take(Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "v-1", Fields: map[string]any{"guest": "g-1"}}))
			require.Equal(t, []string{"m-1"}, kept(m, "visit/v-1"))
			next := nextVersion(t, m, func(s *saga.Spec) { s.Steps = s.Steps[:1] })
			moveTo(t, m, "visit/v-1", next)
			var err error
			m.definitions, err = NewDefinitions([]*saga.Definition{next})
			require.NoError(t, err)
			require.NoError(t, m.Take(Message{ID: "r-1", Hop: "rooms", Type: "Reserved", Key: "v-1", Outcome: "success", SagaID: "visit/v-1", SagaStep: "room"}))
			require.Empty(t, kept(m, "visit/v-1"))
		})
	}
}
