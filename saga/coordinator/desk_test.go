package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func (f *flow) desk() *sagadesk.Desk {
	f.t.Helper()
	d, err := sagadesk.New(sagadesk.Config{Pool: f.pool})
	require.NoError(f.t, err)
	return d
}

func (f *flow) equalsItsLog(id string) {
	f.t.Helper()
	r, err := f.desk().Replay(f.t.Context(), id)
	require.NoError(f.t, err)
	require.Empty(f.t, r.Difference)
	require.Equal(f.t, f.state(id).Version, r.Events)
}

// equalsItsLogOf is equalsItsLog for a saga on any definition.
func (f *flow) equalsItsLogOf(id string) {
	f.t.Helper()
	r, err := f.desk().Replay(f.t.Context(), id)
	require.NoError(f.t, err)
	require.Empty(f.t, r.Difference)
}

var byAnn = saga.Event{Actor: "ann", Reason: "ticket 4711"}

func annsEvent(kind saga.Kind, step string) saga.Event {
	e := byAnn
	e.Kind, e.Step = kind, step
	return e
}

// An operator sees what an action would do and applies it from another process, and the flow continues.
func TestADeskActsInTheCoordinatorsName(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		f.setFail("o-1 inventory/forward", errors.New("no forklift"))
		id := f.start("o-1")
		f.await(id, saga.Parked)
		desk := f.desk()

		list, next, err := desk.List(t.Context(), sagadesk.Filter{Statuses: []saga.Status{saga.Parked}, Step: "inventory"}, sagadesk.Page{})
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, list, 1)
		require.Equal(t, []string{"inventory"}, list[0].Steps)
		g, err := desk.Get(t.Context(), id)
		require.NoError(t, err)
		var possible []string
		for _, e := range sagadesk.Possible(g.Definition, g.State, g.Now) {
			possible = append(possible, fmt.Sprint(e.Kind, " ", e.Step))
		}
		require.Equal(t, []string{"retry inventory", "skip inventory", "resolve inventory", "resolve inventory", "set ", "compensate ", "abandon "}, possible)

		would, err := desk.Preview(t.Context(), id, annsEvent(saga.ActRetry, "inventory"))
		require.NoError(t, err)
		require.Equal(t, saga.Running, would.State.Status)
		require.Equal(t, "ReserveStock", would.Effects.Commands[0].Type)
		require.Equal(t, saga.Parked, f.state(id).Status, "nothing was done")
		_, err = desk.Preview(t.Context(), id, annsEvent(saga.ActRetry, "payment"))
		require.ErrorIs(t, err, coordinator.ErrRefused)
		_, err = desk.Act(t.Context(), id, annsEvent(saga.ActRetry, "payment"))
		require.ErrorContains(t, err, "saga order/o-1: refused: step payment is done: only a failed step can be retried")
		_, err = desk.Act(t.Context(), id, saga.Event{Kind: saga.ActAbandon, Actor: "ann"})
		require.ErrorContains(t, err, "reason: want a reason")
		_, err = desk.Act(t.Context(), "order/o-2", annsEvent(saga.ActAbandon, ""))
		require.ErrorIs(t, err, coordinator.ErrNotFound)

		f.setFail("o-1 inventory/forward", nil)
		did, err := desk.Act(t.Context(), id, annsEvent(saga.ActRetry, "inventory"))
		require.NoError(t, err)
		require.Equal(t, would.Effects.Commands, did.Effects.Commands)
		f.await(id, saga.Completed)
		require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
		f.equalsItsLog(id)
		log, err := desk.Log(t.Context(), id, 0, 100)
		require.NoError(t, err)
		var acted bool
		for i, e := range log {
			require.Equal(t, i+1, e.Version, "the log has no gap")
			acted = acted || e.Event.Kind == saga.ActRetry && e.Event.Actor == "ann" && e.Event.Reason == "ticket 4711"
		}
		require.True(t, acted)
	})
}

// TestADeskStartsASagaInTheNameOfTheCoordinatorOfTheLastOne: the sagas of the group's former name have ended, and are stored until retention
// removes them.
func TestADeskStartsASagaInTheNameOfTheCoordinatorOfTheLastOne(t *testing.T) {
	t.Parallel()
	f := newHops(t, true)
	f.c = f.notRunning(order(t))
	abandoned := func(key string) {
		_, err := f.act(f.start(key), saga.Event{Kind: saga.ActAbandon})
		require.NoError(t, err)
	}
	abandoned("o-1")
	_, err := f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET consumer_group = 'former', content_type = 'application/avro'")
	require.NoError(t, err)
	abandoned("o-2")
	_, err = f.desk().Start(t.Context(), sagadesk.StartRequest{
		Definition: order(t), Actor: "ann", Reason: "on the phone",
		Fields: map[string]any{"order_id": "o-3", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1},
	})
	require.NoError(t, err)
	var group, content string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT consumer_group, content_type FROM troupe.sagas WHERE key = 'o-3'").Scan(&group, &content))
	require.Equal(t, []string{f.name + ".order", envelope.JSON}, []string{group, content})
}

// A Desk without a registry does not write JSON into a flow whose payloads are Avro.
func TestADeskThatCannotWriteAvroSaysSo(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.setFail("o-1 inventory/forward", errors.New("no forklift"))
	id := f.start("o-1")
	f.await(id, saga.Parked)
	_, err := f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET content_type = $1", envelope.Avro)
	require.NoError(t, err)
	for _, do := range []func() error{
		func() error {
			_, err := f.desk().Preview(t.Context(), id, annsEvent(saga.ActRetry, "inventory"))
			return err
		},
		func() error {
			_, err := f.desk().Act(t.Context(), id, annsEvent(saga.ActRetry, "inventory"))
			return err
		},
	} {
		err := do()
		require.ErrorIs(t, err, coordinator.ErrRefused)
		require.ErrorContains(t, err, "it would send ReserveStock, and the payloads of this flow have schemas: name the schema registry")
	}
	require.Equal(t, saga.Parked, f.state(id).Status)
	_, err = f.desk().Act(t.Context(), id, annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err, "it sends nothing")
}

// parcel waits for an event that is found by a variable, and then sends a command.
func parcel(t *testing.T, version int, by string) *saga.Definition {
	t.Helper()
	return parsed(t, fmt.Sprintf(`{"saga":"parcel","version":%d,"key":"id","data":{"id":"string","number":"string"},"start":[{"hop":"shop","event":"Sent","set":{"id":"event.id"}}],
 "steps":[
  {"name":"arrival","success":[{"event":"Arrived","hop":"depot","by":{"variable":%q,"field":"number"}}],"timeout":"100h"},
  {"name":"tell","needs":["arrival"],"command":{"hop":"desk","type":"TellGuest"},"success":[{"event":"Told"}],"irreversible":"a note"}]}`, version, by))
}

// stashed stores an event that came before a saga of type parcel could take it.
func (f *flow) stashed(variable string) {
	f.t.Helper()
	event, err := json.Marshal(saga.Event{Kind: saga.Observed, Hop: "depot", Type: "Arrived", Message: "m-1", Fields: map[string]any{"number": "n-1"}})
	require.NoError(f.t, err)
	_, err = f.pool.Exec(f.t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at)
		VALUES ('parcel', $1, 'n-1', 'depot/Arrived/m-1', $2, now() + interval '1 hour'), ('parcel', $1, 'n-1', 'depot/Arrived/expired', $2, now() - interval '1 hour')`, variable, string(event))
	require.NoError(f.t, err)
}

// TestAPreviewHasTheEffectsOfStashedEvents: an operator sets the variable that finds a stashed event, and the saga then sends a command.
func TestAPreviewHasTheEffectsOfStashedEvents(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.notRunning(parcel(t, 1, "number"))
	f.begun("parcel", map[string]any{"id": "n-1", "number": "n-0"})
	f.stashed("number")
	set := annsEvent(saga.ActSet, "")
	set.Fields = map[string]any{"number": "n-1"}
	would, err := f.desk().Preview(t.Context(), "parcel/n-1", set)
	require.NoError(t, err)
	require.Equal(t, []string{"TellGuest"}, typesOf(would.Effects.Commands))
	f.waitCount("no command of the saga", 0, "SELECT count(*) FROM troupe.outbox WHERE type = 'TellGuest'")
	f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash WHERE message_id = 'depot/Arrived/m-1'")
	did, err := f.desk().Act(t.Context(), "parcel/n-1", set)
	require.NoError(t, err)
	require.Equal(t, would.Effects.Commands, did.Effects.Commands)
	require.Equal(t, would.Effects.Moments, did.Effects.Moments)
	require.Equal(t, would.State.Version, did.State.Version)
	f.waitCount("the command of the saga", 1, "SELECT count(*) FROM troupe.outbox WHERE type = 'TellGuest'")
}

// TestStashedEventsThatExpireAreLogged: no saga took them until another event was stashed, or the saga that they are for started.
func TestStashedEventsThatExpireAreLogged(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*flow){
		"when another event is stashed": func(f *flow) {
			const arrived = `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'n-2', 'Arrived', '{"number": "n-2"}')`
			_, err := f.pool.Exec(t.Context(), arrived, f.name+".depot.events")
			require.NoError(t, err)
		},
		"when the saga starts": func(f *flow) { f.begun("parcel", map[string]any{"id": "n-1", "number": "n-1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			var log safeBuffer
			p := f.participant("order", f.pool)
			var err error
			f.c, err = coordinator.New(t.Context(), coordinator.Config{
				Participant: p, Pool: f.pool, Definitions: []*saga.Definition{parcel(t, 1, "number")}, Log: zerolog.New(&log),
			})
			require.NoError(t, err)
			f.stashed("number")
			f.run(p, f.pool)
			do(f)
			testkit.Wait(t, "the log line", func() (bool, error) {
				return strings.Contains(log.String(), `"saga":"parcel","hop":"depot","event":"Arrived","events":1,`), nil
			})
			require.Zero(t, f.count("SELECT count(*) FROM troupe.saga_stash WHERE message_id = 'depot/Arrived/expired'"))
		})
	}
}

func typesOf(commands []saga.Send) (all []string) {
	for _, c := range commands {
		all = append(all, c.Type)
	}
	return all
}

// TestADeskThatCannotWriteAvroDoesNotWriteWhatAStashedEventCauses has an event that came before a saga could take it. An operator's action lets
// the saga take it, and the saga then sends a command.
func TestADeskThatCannotWriteAvroDoesNotWriteWhatAStashedEventCauses(t *testing.T) {
	t.Parallel()
	v1, byID := parcel(t, 1, "number"), parcel(t, 2, "id")
	set := annsEvent(saga.ActSet, "")
	set.Fields = map[string]any{"number": "n-1"}
	for name, c := range map[string]struct {
		started  bool
		variable string
		do       func(*sagadesk.Desk, string) error
	}{
		"a variable is set": {true, "number", func(d *sagadesk.Desk, _ string) error {
			_, err := d.Act(t.Context(), "parcel/n-1", set)
			return err
		}},
		"a variable would be set": {true, "number", func(d *sagadesk.Desk, _ string) error {
			_, err := d.Preview(t.Context(), "parcel/n-1", set)
			return err
		}},
		"the saga is moved": {true, "id", func(d *sagadesk.Desk, _ string) error {
			return d.Migrate(t.Context(), sagadesk.Migration{To: byID, Actor: "ann", Reason: "ticket 4711"}, func(m sagadesk.Move) error {
				if m.Obstacle != "" {
					return fmt.Errorf("%w: %s", coordinator.ErrRefused, m.Obstacle)
				}
				return nil
			})
		}},
		"the saga is started": {false, "number", func(d *sagadesk.Desk, hop string) error {
			_, err := d.Start(t.Context(), sagadesk.StartRequest{
				Definition: v1, Fields: map[string]any{"id": "n-1", "number": "n-1"}, Actor: "ann", Reason: "ticket 4711", Hop: hop, Avro: true,
			})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.c = f.notRunning(v1)
			if c.started {
				f.begun("parcel", map[string]any{"id": "n-1", "number": "n-0"})
				_, err := f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET content_type = $1", envelope.Avro)
				require.NoError(t, err)
			}
			f.stashed(c.variable)
			err := c.do(f.desk(), f.name+".order")
			require.ErrorIs(t, err, coordinator.ErrRefused)
			require.ErrorContains(t, err, "it would send TellGuest, and the payloads of this flow have schemas: name the schema registry")
			f.waitCount("no command of the saga", 0, "SELECT count(*) FROM troupe.outbox WHERE type = 'TellGuest'")
			f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash WHERE message_id = 'depot/Arrived/m-1'")
		})
	}
}

// The log of every saga folds to its row (promises B03 and B04). A change of the row that is not in the log is found, with
// its path.
func TestReplayFindsWhatTheLogDoesNotGive(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	for i := range 6 {
		f.set(f.refuse, fmt.Sprintf("o-%d shipping/forward", i), map[bool]string{true: "no carrier"}[i == 2])
		f.start(fmt.Sprint("o-", i))
	}
	for i := range 6 {
		f.await(fmt.Sprint("order/o-", i), map[bool]saga.Status{true: saga.Compensated, false: saga.Completed}[i == 2])
	}
	all := func() (ids []string, differences map[string]string) {
		differences = make(map[string]string)
		require.NoError(t, f.desk().ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
			ids = append(ids, r.ID)
			if r.Difference != "" {
				differences[r.ID] = r.Difference
			}
			return nil
		}))
		return ids, differences
	}
	ids, differences := all()
	require.Equal(t, []string{"order/o-0", "order/o-1", "order/o-2", "order/o-3", "order/o-4", "order/o-5"}, ids)
	require.Empty(t, differences)

	for _, change := range []string{
		`UPDATE troupe.sagas SET state = jsonb_set(state, '{steps,1,phase}', '"intent"') WHERE id = 'order/o-0'`,
		`UPDATE troupe.sagas SET state = state #- '{data,shipment_id}' WHERE id = 'order/o-1'`,
		`DELETE FROM troupe.saga_events WHERE saga_id = 'order/o-3' AND version = 2`,
		`DELETE FROM troupe.saga_events WHERE saga_id = 'order/o-4'`,
		`UPDATE troupe.sagas SET version = 9 WHERE id = 'order/o-5'`,
		`UPDATE troupe.saga_events SET event = jsonb_set(event, '{step}', '"shipping"') WHERE saga_id = 'order/o-2' AND version = 2`,
	} {
		_, err := f.pool.Exec(t.Context(), change)
		require.NoError(t, err)
	}
	_, differences = all()
	require.Equal(t, map[string]string{
		"order/o-0": `steps[1].phase: the row has "intent", the log gives "done"`,
		"order/o-1": `data.shipment_id: the row has none, the log gives "s-1"`,
		"order/o-2": "entry 2 (answered) changes nothing: the answer PaymentCharged to step shipping came from hop payment, which the step does not " +
			"ask. If the saga was on another definition before its database was set back, move it there again and redrive the answer; else find out " +
			"why that hop answers, and discard this dead letter",
		"order/o-3": "the log has no entry 2: behind 1 comes 3",
		"order/o-4": "the log is empty",
		"order/o-5": "version: the row has 9, the log gives 4",
	}, differences)
	_, err := f.desk().Replay(t.Context(), "order/none")
	require.ErrorIs(t, err, coordinator.ErrNotFound)
}

// withInsurance adds a step before the shipment; it needs no answer of other hops than the flow has.
func withInsurance(t testing.TB) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	spec.Version = 2
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	pay := spec.Steps[1]
	pay.Name, pay.Needs, pay.Success = "insurance", []string{"inventory"}, []saga.Answer{{Event: "StockReserved"}}
	spec.Steps[2].Needs = []string{"insurance"}
	spec.Steps = append(spec.Steps, pay)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// A saga that can move to another definition is moved, each obstacle is reported, and the log folds across the move.
func TestSagasMoveToAnotherDefinition(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.setFail("o-1 inventory/forward", errors.New("no forklift"))
	f.setFail("o-2 shipping/forward", errors.New("no lorry"))
	for i := range 3 {
		f.start(fmt.Sprint("o-", i))
	}
	f.await("order/o-0", saga.Completed)
	f.await("order/o-1", saga.Parked)
	f.await("order/o-2", saga.Parked)
	to := withInsurance(t)
	var moves []sagadesk.Move
	note := func(m sagadesk.Move) error {
		moves = append(moves, m)
		return nil
	}
	require.NoError(t, f.desk().Plan(t.Context(), sagadesk.Migration{To: to}, note))
	from := order(t).Hash()
	require.Equal(t, []sagadesk.Move{
		{ID: "order/o-1", Status: saga.Parked, From: from},
		{ID: "order/o-2", Status: saga.Parked, From: from},
	}, moves)
	spec := to.Spec()
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	spec.Steps[2].Pivot = false
	other, err := saga.Define(spec)
	require.NoError(t, err)
	moves = nil
	require.NoError(t, f.desk().Plan(t.Context(), sagadesk.Migration{To: other}, note))
	require.Equal(t, "step shipping is exhausted, and the pivot in only one of the two", moves[1].Obstacle)

	require.Error(t, f.desk().Migrate(t.Context(), sagadesk.Migration{To: to, Actor: "ann", Reason: ""}, note))
	moves = nil
	require.NoError(t, f.desk().Migrate(t.Context(), sagadesk.Migration{From: other, To: to, Actor: "ann", Reason: "r"}, note))
	require.Empty(t, moves, "none runs on it")
	require.ErrorContains(t, f.desk().Plan(t.Context(), sagadesk.Migration{From: to, To: to}, note), "two definitions")
	require.NoError(t, f.desk().Plan(t.Context(), sagadesk.Migration{From: order(t), To: to}, note))
	require.Len(t, moves, 2)
	moves = nil
	require.NoError(t, f.desk().Migrate(t.Context(), sagadesk.Migration{To: to, Actor: "ann", Reason: "ticket 4712: insure"}, note))
	require.Len(t, moves, 2)
	f.coordinator(to) // a process of the new version
	f.setFail("o-1 inventory/forward", nil)
	_, err = f.desk().Act(t.Context(), "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.NoError(t, err)
	testkit.Wait(t, "order/o-1 to be completed", func() (bool, error) {
		g, err := f.desk().Get(t.Context(), "order/o-1")
		return err == nil && g.Status == saga.Completed, err
	})
	require.Equal(t, []string{"payment/forward", "inventory/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
	require.NoError(t, f.desk().ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
		require.Empty(t, r.Difference, r.ID)
		return nil
	}))
	moves = nil
	require.NoError(t, f.desk().Migrate(t.Context(), sagadesk.Migration{To: to, Actor: "ann", Reason: "again"}, note))
	require.Empty(t, moves)
}

// A saga that is moved is found by associations that only the new definition has, also by events that came before.
func TestAMovedSagaIsFoundAnew(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.setFail("o-1 inventory/forward", errors.New("no forklift"))
	f.start("o-1")
	f.await("order/o-1", saga.Parked)
	spec := order(t).Spec()
	spec.Version = 2
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	spec.Steps[2].Needs = []string{"inventory", "approval"}
	spec.Steps = append(spec.Steps, saga.Step{Name: "approval", Needs: []string{"inventory"}, Success: []saga.Answer{{
		Event: "Approved", Hop: "payment", By: &saga.Association{Variable: "customer_id", Field: "customer_id"},
	}}})
	to, err := saga.Define(spec)
	require.NoError(t, err)
	event, err := json.Marshal(saga.Event{Kind: saga.Observed, Hop: "payment", Type: "Approved", Message: "m-1", Fields: map[string]any{"customer_id": "c-1"}})
	require.NoError(t, err)
	_, err = f.pool.Exec(t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at)
		VALUES ('order', 'customer_id', 'c-1', 'payment/Approved/m-1', $1, now() + interval '1 hour')`, string(event))
	require.NoError(t, err)
	require.NoError(t, f.desk().Migrate(t.Context(), sagadesk.Migration{To: to, Actor: "ann", Reason: "ticket 4713"}, func(sagadesk.Move) error { return nil }))
	g, err := f.desk().Get(t.Context(), "order/o-1")
	require.NoError(t, err)
	require.Equal(t, to.Hash(), g.State.Definition)
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.saga_stash"), "it is kept until its step awaits it")
	var n int
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_associations WHERE saga_id = 'order/o-1' AND variable = 'customer_id'").Scan(&n))
	require.Equal(t, 1, n)
	f.equalsItsLogOf("order/o-1")

	_, err = f.desk().Preview(t.Context(), "order/o-1", saga.Event{Kind: saga.ActAbandon})
	require.NoError(t, err)
	_, err = f.as(grants.SagaOperator).Act(t.Context(), "order/o-1", annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.saga_stash WHERE variable = 'customer_id' AND value = 'c-1'"), "it is for the next saga of the customer")
	f.equalsItsLogOf("order/o-1")
}

// TestAnActionReturnsTheStateOfItsOwnSaga abandons a saga that leaves an event to another saga.
func TestAnActionReturnsTheStateOfItsOwnSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.notRunning(parsed(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},"steps":[
		{"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"1h","irreversible":"it ends by itself"},
		{"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	event, err := json.Marshal(saga.Event{Kind: saga.Observed, Hop: "door", Type: "Arrived", Message: "m-1", Fields: map[string]any{"guest": "g-1"}})
	require.NoError(t, err)
	_, err = f.pool.Exec(t.Context(), `INSERT INTO troupe.saga_stash (saga, variable, value, saga_id, message_id, event)
		VALUES ('visit', 'guest', 'g-1', 'visit/v-1', 'door/Arrived/m-1', $1)`, string(event))
	require.NoError(t, err)
	for _, id := range []string{"v-1", "v-2"} {
		f.begun("visit", map[string]any{"id": id, "guest": "g-1"})
	}
	kept, err := f.desk().Get(t.Context(), "visit/v-1")
	require.NoError(t, err)
	require.Equal(t, []sagadesk.KeptEvent{{Hop: "door", Type: "Arrived", Message: "m-1", Variable: "guest"}}, kept.Kept)
	did, err := f.desk().Act(t.Context(), "visit/v-1", annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	require.Equal(t, "visit/v-1", did.State.ID())
	require.Equal(t, saga.Abandoned, did.State.Status)
	other, err := f.desk().Get(t.Context(), "visit/v-2")
	require.NoError(t, err)
	require.Equal(t, 1, other.State.Version)
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.saga_stash WHERE saga_id = ''"), "it is for the other saga, which does not await it yet")
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.deadlines WHERE name = 'search-stash' AND scope = ' visit/guest/g-1'"))
	f.equalsItsLogOf("visit/v-2")
}

// Semantic locks and stashed events are listed.
func TestLocksAndStashAreListed(t *testing.T) {
	t.Parallel()
	spec := order(t).Spec()
	spec.Lock = "data.customer_id"
	locking, err := saga.Define(spec)
	require.NoError(t, err)
	pool := testkit.Database(t)
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true})
	require.NoError(t, err)
	c, err := coordinator.New(t.Context(), coordinator.Config{Participant: p, Pool: pool, Definitions: []*saga.Definition{locking}})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := c.Start(t.Context(), tx, "order", map[string]any{"order_id": fmt.Sprint("o-", i), "customer_id": "c-1", "amount_cents": 5, "title": 7, "quantity": 1})
			return err
		}))
	}
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	locks, _, err := desk.Locks(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, locks, 3)
	require.Equal(t, "order/c-1", locks[0].Name)
	require.Equal(t, []bool{true, false, false}, []bool{locks[0].Has, locks[1].Has, locks[2].Has})
	for customer, want := range map[string]saga.Status{"c-1": saga.Waiting, "c-2": saga.Running} {
		would, err := desk.PreviewStart(t.Context(), sagadesk.StartRequest{
			Definition: locking, Actor: "ann", Reason: "r",
			Fields: map[string]any{"order_id": "o-9", "customer_id": customer, "amount_cents": 5, "title": 7, "quantity": 1},
		})
		require.NoError(t, err)
		require.Equal(t, want, would.State.Status, customer)
	}
	did, err := desk.Act(t.Context(), locks[0].Saga, annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	require.Equal(t, saga.Abandoned, did.State.Status)
	locks, _, err = desk.Locks(t.Context(), "", 10)
	require.NoError(t, err)
	require.True(t, locks[0].Has, "it has the lock that it waited for")

	event, err := json.Marshal(saga.Event{Kind: saga.Observed, Message: "m-1"})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at) VALUES "+
		"('order', '', 'o-9', 'm-1', $1, now() + interval '1 hour'), ('order', '', 'o-9', 'expired', $1, now() - interval '1 hour')", string(event))
	require.NoError(t, err)
	stash, err := desk.Stash(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, stash[0].Count)
	require.True(t, stash[0].Expires.After(time.Now()))
	counts, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"order": 1}, counts.Stashed, "neither counts expired events")
}
