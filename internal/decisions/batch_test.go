package decisions

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnEventBehindTheEndIsKeptAlsoInTheBatchThatEndsTheSaga: two events of one value come in one batch. The first one ends its saga, and the
// second one is for the next saga of that value.
func TestAnEventBehindTheEndIsKeptAlsoInTheBatchThatEndsTheSaga(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},
 "steps":[{"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	arrived := func(id string) Message {
		return Message{ID: id, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	}
	for name, batches := range map[string][][]Message{
		"one batch":   {{arrived("m-1"), arrived("m-2")}},
		"two batches": {{arrived("m-1")}, {arrived("m-2")}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMemory(time.Unix(1000, 0), d)
			require.NoError(t, err)
			_, err = m.Start("visit", map[string]any{"id": "v-1", "guest": "g-1"})
			require.NoError(t, err)
			for _, batch := range batches {
				takeBatch(t, m, batch...)
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			_, err = m.Start("visit", map[string]any{"id": "v-2", "guest": "g-1"})
			require.NoError(t, err)
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}

// TestAnEventThatEndsItsSagaIsNotKeptForTheNextOne: the event finds its saga by two variables. It is used once.
func TestAnEventThatEndsItsSagaIsNotKeptForTheNextOne(t *testing.T) {
	m := memoryOf(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string","room":"string"},
 "steps":[{"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}},
  {"event":"Arrived","hop":"door","by":{"variable":"room","field":"room"}}],"timeout":"24h"}]}`)
	_, err := m.Start("visit", map[string]any{"id": "v-1", "guest": "g-1", "room": "r-1"})
	require.NoError(t, err)
	arrived := Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1", "room": "r-1"}}
	takeBatch(t, m, arrived)
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	_, err = m.Start("visit", map[string]any{"id": "v-2", "guest": "g-2", "room": "r-1"})
	require.NoError(t, err)
	require.Equal(t, saga.Running, m.Sagas()[1].Status)
}

// TestAnEventThatFindsItsSagaTwiceIsUsedOnce has two steps, one after the other, that await the same event by two variables. An event has both
// values: the first step takes it, and the second one waits for another event.
func TestAnEventThatFindsItsSagaTwiceIsUsedOnce(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"trade","version":1,"key":"id","data":{"id":"string","seller":"string","buyer":"string"},"steps":[
 {"name":"sold","success":[{"event":"Confirmed","hop":"bank","by":{"variable":"seller","field":"account"}}],"timeout":"24h"},
 {"name":"bought","needs":["sold"],"success":[{"event":"Confirmed","hop":"bank","by":{"variable":"buyer","field":"account"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	confirmed := func(id string) Message {
		return Message{ID: id, Hop: "bank", Type: "Confirmed", Key: "x", Fields: map[string]any{"account": "a-1"}}
	}
	start := func(t *testing.T, m *Memory) {
		t.Helper()
		_, err := m.Start("trade", map[string]any{"id": "t-1", "seller": "a-1", "buyer": "a-1"})
		require.NoError(t, err)
	}
	for name, first := range map[string]func(*testing.T, *Memory){
		"after the start":  func(t *testing.T, m *Memory) { start(t, m); require.NoError(t, m.Take(confirmed("m-1"))) },
		"before the start": func(t *testing.T, m *Memory) { require.NoError(t, m.Take(confirmed("m-1"))); start(t, m) },
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMemory(time.Unix(1000, 0), d)
			require.NoError(t, err)
			first(t, m)
			require.Equal(t, saga.Running, m.Sagas()[0].Status)
			require.Equal(t, []saga.Phase{saga.Done, saga.Intent}, phases(m.Sagas()[0]))
			require.NoError(t, m.Take(confirmed("m-2")))
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
		})
	}
}

// TestAnEventThatASagaHasKeptAndNotUsedIsForTheNextOne gives a saga two events of its value before its step awaits one.
func TestAnEventThatASagaHasKeptAndNotUsedIsForTheNextOne(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"cancel":{"operator":true},"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"failure":[{"event":"Full"}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	answer := func(id, event, outcome string) Message {
		return Message{ID: id + event, Hop: "rooms", Type: event, Key: id, Outcome: outcome, SagaID: "visit/" + id, SagaStep: "room"}
	}
	reserved := func(id string) func(*Memory) error {
		return func(m *Memory) error { return m.Take(answer(id, "Reserved", "success")) }
	}
	for name, end := range map[string]struct {
		does func(*Memory) error
		is   saga.Status
		left int
	}{
		"it completes with the first": {reserved("v-1"), saga.Completed, 1},
		"it goes back":                {func(m *Memory) error { return m.Take(answer("v-1", "Full", "failure")) }, saga.Compensated, 2},
		"it is abandoned by a person": {func(m *Memory) error { _, err := m.Act("visit/v-1", saga.Event{Kind: saga.ActAbandon}); return err }, saga.Abandoned, 2},
		"it is cancelled while it runs": {func(m *Memory) error {
			_, err := m.Act("visit/v-1", saga.Event{Kind: saga.ActCancel})
			require.NoError(t, err)
			return m.Take(answer("v-1", "Full", "failure"))
		}, saga.Compensated, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMemory(time.Unix(1000, 0), d)
			require.NoError(t, err)
			_, err = m.Start("visit", map[string]any{"id": "v-1", "guest": "g-1"})
			require.NoError(t, err)
			for _, id := range []string{"m-1", "m-2"} {
				require.NoError(t, m.Take(Message{ID: id, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}))
			}
			require.NoError(t, end.does(m))
			require.Equal(t, end.is, m.Sagas()[0].Status)
			for i, id := range []string{"v-2", "v-3"} {
				_, err = m.Start("visit", map[string]any{"id": id, "guest": "g-1"})
				require.NoError(t, err)
				require.NoError(t, reserved(id)(m))
				if i < end.left {
					require.Equal(t, saga.Completed, m.Sagas()[i+1].Status)
				} else {
					require.Equal(t, saga.Running, m.Sagas()[i+1].Status)
				}
			}
		})
	}
}

// TestEventsThatAnEndedSagaLeavesKeepTheirOrder: three events come before a saga. It keeps the first one, the second one ends it, and the next saga
// gets the first one before the third.
func TestEventsThatAnEndedSagaLeavesKeepTheirOrder(t *testing.T) {
	m := memoryOf(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"check","success":[{"event":"Checked","hop":"door","by":{"variable":"guest","field":"guest"}}],
  "failure":[{"event":"Rejected","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["check"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`)
	take := func(id, event string) {
		require.NoError(t, m.Take(Message{ID: id, Hop: "door", Type: event, Key: "x", Fields: map[string]any{"guest": "g-1"}}))
	}
	take("m-1", "Arrived")
	take("m-2", "Rejected")
	take("m-3", "Arrived")
	for _, id := range []string{"v-1", "v-2"} {
		_, err := m.Start("visit", map[string]any{"id": id, "guest": "g-1"})
		require.NoError(t, err)
	}
	require.Equal(t, saga.Compensated, m.Sagas()[0].Status)
	require.Equal(t, []string{"m-1", "m-3"}, kept(m, "visit/v-2"))
}

// TestAnEventThatASagaHasKeptIsForTheSagaThatIsGrantedItsLock starts the second saga after both events have come.
func TestAnEventThatASagaHasKeptIsForTheSagaThatIsGrantedItsLock(t *testing.T) {
	m, start, arrive, reserve := visit(t, `,"lock":"data.guest"`)
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	start("v-2")
	start("v-3")
	for i, id := range []string{"v-1", "v-2"} {
		reserve(id)
		require.Equal(t, saga.Completed, m.Sagas()[i].Status)
	}
	reserve("v-3")
	require.Equal(t, []saga.Phase{saga.Done, saga.Intent}, phases(m.Sagas()[2]))
}

// TestAnEventThatTwoSagasGotIsKeptForNoThird has two sagas of one value that run at once: both get each event.
func TestAnEventThatTwoSagasGotIsKeptForNoThird(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-1")
	start("v-2")
	arrive("m-1")
	arrive("m-2")
	reserve("v-1")
	reserve("v-2")
	start("v-3")
	reserve("v-3")
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
	require.Equal(t, []saga.Phase{saga.Done, saga.Intent}, phases(m.Sagas()[2]))
}

// TestAnEventThatFindsItsSagaAgainByALaterVariableIsUsedOnce: the buyer is set in another transaction than the one that has used the event.
func TestAnEventThatFindsItsSagaAgainByALaterVariableIsUsedOnce(t *testing.T) {
	m := memoryOf(t, `{"saga":"trade","version":1,"key":"id","data":{"id":"string","seller":"string","buyer":"string"},"steps":[
 {"name":"sold","success":[{"event":"Confirmed","hop":"bank","by":{"variable":"seller","field":"account"}}],"timeout":"24h"},
 {"name":"found","needs":["sold"],"command":{"hop":"market","type":"Find"},"success":[{"event":"Found","set":{"buyer":"event.buyer"}}],"timeout":"1h","irreversible":"it reads"},
 {"name":"bought","needs":["found"],"success":[{"event":"Confirmed","hop":"bank","by":{"variable":"buyer","field":"account"}}],"timeout":"24h"}]}`)
	_, err := m.Start("trade", map[string]any{"id": "t-1", "seller": "a-1"})
	require.NoError(t, err)
	confirmed := Message{ID: "m-1", Hop: "bank", Type: "Confirmed", Key: "x", Fields: map[string]any{"account": "a-1"}}
	require.NoError(t, m.Take(confirmed))
	require.NoError(t, m.Take(Message{ID: "f-1", Hop: "market", Type: "Found", Key: "t-1", Outcome: "success", SagaID: "trade/t-1", SagaStep: "found",
		Fields: map[string]any{"buyer": "a-1"}}))
	require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[0]))
	confirmed.ID = "m-2"
	require.NoError(t, m.Take(confirmed))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestASagaThatIsGrantedALockGetsWhatTheFormerOneLeftFirst: the first event came before the second saga, which has kept the second event while
// it waited.
func TestASagaThatIsGrantedALockGetsWhatTheFormerOneLeftFirst(t *testing.T) {
	m, start, arrive, reserve := visit(t, `,"lock":"data.guest"`)
	start("v-1")
	arrive("m-1")
	arrive("m-2")
	arrive("m-3") // v-1 uses m-1, and leaves m-2 and m-3
	start("v-2")
	arrive("m-4")
	reserve("v-1")
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.Equal(t, []string{"m-2", "m-3", "m-4"}, kept(m, "visit/v-2"))
	reserve("v-2")
	require.Equal(t, "m-2", m.Sagas()[1].Steps[1].Message)
}

// TestAnEventThatAnEndedSagaLeavesIsForOneThatRunsAlready: the second saga began after the event came, and before the first one ended.
func TestAnEventThatAnEndedSagaLeavesIsForOneThatRunsAlready(t *testing.T) {
	for name, reserved := range map[string]bool{"it awaits the event now": true, "it will await the event": false} {
		t.Run(name, func(t *testing.T) {
			m, start, arrive, reserve := visit(t, "")
			start("v-1")
			arrive("m-1")
			arrive("m-2")
			start("v-2")
			if reserved {
				reserve("v-2")
			}
			reserve("v-1")
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			if !reserved {
				reserve("v-2")
			}
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}

// TestAnEventThatIsIgnoredIsUsedWhenItsBatchSetsTheVariable: the event finds the saga by the guest, for whom no step waits any more. A later
// message of its batch sets the partner, for whom the event is kept.
func TestAnEventThatIsIgnoredIsUsedWhenItsBatchSetsTheVariable(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"tour","version":1,"key":"id","data":{"id":"string","guest":"string","partner":"string"},"steps":[
 {"name":"first","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"},
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved","set":{"partner":"event.partner"}}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"second","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"partner","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	arrived := func(id string) Message {
		return Message{ID: id, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	}
	reserved := Message{ID: "r-1", Hop: "rooms", Type: "Reserved", Key: "t-1", Outcome: "success", SagaID: "tour/t-1", SagaStep: "room",
		Fields: map[string]any{"partner": "g-1"}}
	for name, batches := range map[string][][]Message{
		"one batch":   {{arrived("m-1")}, {arrived("m-2"), reserved}},
		"two batches": {{arrived("m-1")}, {arrived("m-2")}, {reserved}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMemory(time.Unix(1000, 0), d)
			require.NoError(t, err)
			_, err = m.Start("tour", map[string]any{"id": "t-1", "guest": "g-1"})
			require.NoError(t, err)
			for _, batch := range batches {
				takeBatch(t, m, batch...)
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
		})
	}
}

// TestABatchOfEventsForManySagasIsDecidedInTime: each of 100 events is decided on for each of 500 sagas. A handler has 30 s by default.
func TestABatchOfEventsForManySagasIsDecidedInTime(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
 {"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"},
 {"name":"departure","needs":["arrival"],"success":[{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	m, start, arrive, _ := visitOf(t, d)
	for n := range 500 {
		start(fmt.Sprint("v-", n))
	}
	arrive("m-0")
	batch := make([]Message, 100)
	for n := range batch {
		batch[n] = Message{ID: fmt.Sprint("m-", n+1), Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	}
	began := time.Now()
	p := m.definitions.begin(m)
	require.NoError(t, p.messages(t.Context(), batch))
	require.Len(t, p.decided, 50_000)
	require.Less(t, time.Since(began), 30*time.Second)
}
