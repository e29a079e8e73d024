package decisions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// again tries the event of r again, as the deadline of a RetryEvent does. It returns the targets that are tried again after that.
func again(t *testing.T, m *Memory, r target) []target {
	t.Helper()
	next, err := tryAgain(t, m, r)
	require.NoError(t, err)
	return next
}

// tryAgain is again with the error of the transaction.
func tryAgain(t *testing.T, m *Memory, r target) (next []target, err error) {
	t.Helper()
	text, err := json.Marshal(r.event)
	require.NoError(t, err)
	e, err := saga.ReadEvent(text)
	require.NoError(t, err)
	body := RetryEvent{Saga: r.id, Variable: r.by.Variable, Value: r.by.Value, Shared: r.shared, Event: text}
	err = m.pass(func(p *pass) error {
		err := p.retryEvent(t.Context(), body, e)
		next = p.retries
		return err
	})
	return next, err
}

// fill lets the sagas keep events up to the limit, and returns the targets of a further event that have no room, of the type visit.
func fill(t *testing.T, m *Memory, id string) []target {
	t.Helper()
	large := func(n int) Message {
		return Message{ID: fmt.Sprint(id, n), Hop: "door", Type: "Arrived", Key: "x",
			Fields: map[string]any{"guest": "g-1", "note": strings.Repeat("x", 3<<20)}}
	}
	require.NoError(t, m.Take(large(0)))
	require.NoError(t, m.Take(large(1)))
	var refused []target
	require.NoError(t, m.pass(func(p *pass) error {
		err := p.messages(t.Context(), []Message{large(2)})
		refused = p.retries
		return err
	}))
	return slices.DeleteFunc(refused, func(r target) bool { return r.by.Saga != "visit" })
}

// visitAndNotice is visitOf with a second type of saga that awaits the same events, so that each event has two targets.
func visitAndNotice(t *testing.T, text string) (m *Memory, start, reserve func(id string)) {
	t.Helper()
	var ds []*saga.Definition
	for _, name := range []string{"visit", "notice"} {
		d, err := saga.Parse([]byte(strings.Replace(text, `"visit"`, fmt.Sprintf("%q", name), 1)))
		require.NoError(t, err)
		ds = append(ds, d)
	}
	m, start, _, reserve = visitOf(t, ds[0])
	var err error
	m.definitions, err = NewDefinitions(ds)
	require.NoError(t, err)
	return m, start, reserve
}

// TestAnEventThatIsTriedAgainIsForAnotherSagaIfItsOwnIgnoresIt: the saga runs on, but awaits the event no more.
func TestAnEventThatIsTriedAgainIsForAnotherSagaIfItsOwnIgnoresIt(t *testing.T) {
	for name, leave := range map[string]func(*Memory) error{
		"it was moved": func(m *Memory) error {
			spec := m.definitions.Current("visit").Spec()
			spec.Version, spec.Steps = 2, []saga.Step{spec.Steps[0], spec.Steps[2]}
			spec.Steps[1].Needs = []string{"room"}
			next, err := saga.Define(spec)
			require.NoError(t, err)
			m.definitions.Add(next.Hash(), next)
			return m.pass(func(p *pass) error {
				return p.move(t.Context(), "visit/v-1", next, saga.Event{Kind: saga.Migrated, To: next.Hash()})
			})
		},
		"it goes back": func(m *Memory) error {
			_, err := m.Act("visit/v-1", saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "ticket 1"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, start, reserve := visitAndNotice(t, strings.Replace(stays, `"steps"`, `"cancel":{"operator":true},"steps"`, 1))
			start("v-1")
			refused := fill(t, m, "m-")
			require.Len(t, refused, 1)
			require.NoError(t, leave(m))
			require.False(t, m.Sagas()[0].Ended())
			m.stash = nil // the other events were used
			start("v-2")
			reserve("v-2")
			again(t, m, refused[0])
			require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[1]))
		})
	}
}

// TestAnEventThatIsTriedAgainIsForEachSagaThatHasRoom: its own saga has ended. One of the other two has no room for it.
func TestAnEventThatIsTriedAgainIsForEachSagaThatHasRoom(t *testing.T) {
	m, start, reserve := visitAndNotice(t, stays)
	start("v-1")
	refused := fill(t, m, "m-")
	require.Len(t, refused, 1)
	_, err := m.Act("visit/v-1", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "ticket 1"})
	require.NoError(t, err)
	m.stash = nil
	start("v-2")
	fill(t, m, "n-")
	start("v-3")
	reserve("v-3")
	next := again(t, m, refused[0])
	require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[2]))
	require.Len(t, next, 1)
	require.Equal(t, "visit/v-2", next[0].id)
	require.True(t, next[0].shared)
}

// TestAnEventWithoutRoomInTheStashIsADeadLetterForEachTypeOfSaga: two types of saga await the event, so that its message is no dead letter itself.
func TestAnEventWithoutRoomInTheStashIsADeadLetterForEachTypeOfSaga(t *testing.T) {
	for name, by := range map[string]string{"by a variable": `,"by":{"variable":"guest","field":"guest"}`, "by the key": ""} {
		t.Run(name, func(t *testing.T) {
			m, start, reserve := visitAndNotice(t, strings.ReplaceAll(stays, `,"by":{"variable":"guest","field":"guest"}`, by))
			refused := fill(t, m, "m-")
			require.Len(t, refused, 1)
			_, err := tryAgain(t, m, refused[0])
			require.ErrorIs(t, err, ErrRefused)
			require.True(t, retry.IsPermanent(err))
			require.ErrorContains(t, err, "saga visit")
			m.stash = nil
			again(t, m, refused[0])
			require.Equal(t, []string{"m-2"}, kept(m, "visit/x"))
			start("x")
			reserve("x")
			require.Equal(t, []saga.Phase{saga.Done, saga.Done, saga.Intent}, phases(m.Sagas()[0]))
		})
	}
}

// TestAnEventWithoutRoomIsTriedAgainForEachVariable: one type of saga awaits the event by two variables.
func TestAnEventWithoutRoomIsTriedAgainForEachVariable(t *testing.T) {
	guest, event := RetryEvent{Saga: "visit/", Variable: "guest", Value: "g-1"}, json.RawMessage(`{}`)
	partner := guest
	partner.Variable = "partner"
	guest.Event, partner.Event = event, event
	require.NotEqual(t, guest.Scope(), partner.Scope(), "two deadlines")
}
