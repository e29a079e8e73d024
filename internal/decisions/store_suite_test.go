package decisions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// transact runs do in a transaction of a store, and commits it if do returns no error. The error is do's or the commit's.
type transact func(do func(decisions.Store) error) error

// testStore checks the contract of decisions.Store, with one suite for every implementation. open returns a store that is empty and knows the definition.
func testStore(t *testing.T, open func(t testing.TB, d *saga.Definition) transact) {
	d := definition(t)
	for name, test := range map[string]func(*testing.T, *stage){
		"a saved saga is loaded":                            saved,
		"nothing of a transaction that fails is kept":       failed,
		"of two starts one is a conflict":                   startedTwice,
		"a change of another version is a conflict":         changedMeanwhile,
		"sagas are found by association until they end":     associated,
		"stashed events come once, in order, in time":       stashed,
		"an event stashed twice is stored once":             stashedTwice,
		"stashed events are found by their types, in parts": stashedOfTypes,
		"an event is stashed for a saga, then for the next": stashedForASaga,
		"no stashed event expires while its saga runs":      stashedWhileASagaRuns,
		"unexpired stashed events have a size":              stashedBytes,
		"locks are granted one after the other":             locked,
		"a saga that no longer waits gets no lock":          gaveUp,
		"a lock of any name is granted to the next":         lockedByAnyName,
		"expired events are deleted":                        expired,
		"the clock does not go back":                        clock,
		"an id that was not started is not found":           absent,
		"associations of one value find sagas of each type": ofEachType,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &stage{t, d, open(t, d)})
		})
	}
}

type stage struct {
	t        testing.TB
	d        *saga.Definition
	transact transact
}

func definition(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := saga.Define(saga.Spec{
		Saga: "visit", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "guest": saga.String},
		Steps: []saga.Step{{Name: "arrive", Success: []saga.Answer{
			{Hop: "door", Event: "Arrived", By: &saga.Association{Variable: "guest", Field: "name"}},
		}}},
	})
	require.NoError(t, err)
	return d
}

var ctx = context.Background()

// do runs a transaction that must succeed.
func (s *stage) do(do func(decisions.Store) error) {
	s.t.Helper()
	require.NoError(s.t, s.transact(do))
}

// begun returns the first change of a saga.
func (s *stage) begun(key string) decisions.Change {
	event := saga.Event{Kind: saga.Started, Fields: map[string]any{"id": key, "guest": "g-" + key}}
	at := time.Now().UTC().Truncate(time.Microsecond)
	state, fx := saga.Decide(s.d, saga.State{}, event, at)
	require.Empty(s.t, fx.Refused)
	return decisions.Change{
		State: state, Entries: []decisions.Entry{{Version: 1, At: at, Event: event, Moments: fx.Moments}},
		WakeAt: at.Add(time.Hour), Associations: []decisions.Association{guest("g-" + key)},
	}
}

func (s *stage) save(c decisions.Change) {
	s.t.Helper()
	s.do(func(st decisions.Store) error { return st.Save(ctx, []decisions.Change{c}) })
}

// abandon ends a saga that has just begun.
func (s *stage) abandon(key string) {
	s.t.Helper()
	r, _ := s.load("visit/" + key)
	state, err := s.d.ReadState(r.State)
	require.NoError(s.t, err)
	event := saga.Event{Kind: saga.ActAbandon, Actor: "me", Reason: "enough"}
	state, fx := saga.Decide(s.d, state, event, time.Now())
	s.save(decisions.Change{Was: 1, State: state, Entries: []decisions.Entry{{Version: 2, At: time.Now(), Event: event, Moments: fx.Moments}}})
}

func (s *stage) load(id string) (r decisions.Record, there bool) {
	s.t.Helper()
	s.do(func(st decisions.Store) error {
		found, err := st.Load(ctx, []string{id})
		if len(found) > 0 {
			r, there = found[0], true
		}
		return err
	})
	return r, there
}

func guest(name string) decisions.Association {
	return decisions.Association{Saga: "visit", Variable: "guest", Value: name}
}

func saved(t *testing.T, s *stage) {
	first := s.begun("v-1")
	s.save(first)
	r, there := s.load("visit/v-1")
	require.True(t, there)
	require.Equal(t, s.d.Hash(), r.Definition)
	require.True(t, first.WakeAt.Equal(r.WakeAt))
	state, err := s.d.ReadState(r.State)
	require.NoError(t, err)
	require.Equal(t, asJSON(t, first.State), asJSON(t, state))

	// and changed
	at := first.WakeAt
	event := saga.Event{Kind: saga.Observed, Hop: "door", Type: "Arrived", Fields: map[string]any{"name": "g-v-1"}}
	next, fx := saga.Decide(s.d, state, event, at)
	s.save(decisions.Change{Was: 1, State: next, Entries: []decisions.Entry{{Version: 2, At: at, Event: event, Moments: fx.Moments}}})
	r, _ = s.load("visit/v-1")
	require.True(t, r.WakeAt.IsZero())
	state, err = s.d.ReadState(r.State)
	require.NoError(t, err)
	require.Equal(t, saga.Completed, state.Status)
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

var errEnough = errors.New("enough")

func failed(t *testing.T, s *stage) {
	err := s.transact(func(st decisions.Store) error {
		if err := st.Save(ctx, []decisions.Change{s.begun("v-1")}); err != nil {
			return err
		}
		return errEnough
	})
	require.ErrorIs(t, err, errEnough)
	_, there := s.load("visit/v-1")
	require.False(t, there)
	s.do(func(st decisions.Store) error {
		found, _, err := st.Associated(ctx, []decisions.Association{guest("g-v-1")})
		require.Empty(t, found)
		return err
	})
}

func startedTwice(t *testing.T, s *stage) {
	s.save(s.begun("v-1"))
	err := s.transact(func(st decisions.Store) error { return st.Save(ctx, []decisions.Change{s.begun("v-1")}) })
	require.ErrorIs(t, err, decisions.ErrConflict)
}

func changedMeanwhile(t *testing.T, s *stage) {
	c := s.begun("v-1")
	s.save(c)
	c.Was = 7
	c.State.Version = 8
	c.Entries = nil
	err := s.transact(func(st decisions.Store) error { return st.Save(ctx, []decisions.Change{c}) })
	require.ErrorIs(t, err, decisions.ErrConflict)
}

func associated(t *testing.T, s *stage) {
	s.save(s.begun("v-1"))
	find := func() (found map[decisions.Association][]string) {
		s.do(func(st decisions.Store) (err error) {
			found, _, err = st.Associated(ctx, []decisions.Association{guest("g-v-1"), guest("g-v-2")})
			return err
		})
		return found
	}
	require.Equal(t, map[decisions.Association][]string{guest("g-v-1"): {"visit/v-1"}}, find())
	s.abandon("v-1")
	require.Empty(t, find())
}

func early(by decisions.Association, message string, expires time.Time) decisions.Stashed {
	return decisions.Stashed{Association: by, Expires: expires, Event: saga.Event{
		Kind: saga.Observed, Hop: "door", Type: "Arrived", Message: message, Fields: map[string]any{"n": int64(1)},
	}}
}

// arrivals selects the events of as, from two hops.
func arrivals(as ...decisions.Association) (q decisions.StashQuery) {
	for _, a := range as {
		for _, hop := range []string{"door", "window"} {
			q.Wanted = append(q.Wanted, decisions.Wanted{Association: a, Hop: hop, Type: "Arrived"})
		}
	}
	return q
}

// unstash finds the events of as that saga id may use, and uses them all.
func unstash(s *stage, id string, as ...decisions.Association) (messages []string) {
	s.t.Helper()
	s.do(func(st decisions.Store) error {
		if err := st.Guard(ctx, as); err != nil {
			return err
		}
		found, err := st.FindStashed(ctx, id, as, arrivals(as...))
		for _, e := range found {
			require.Equal(s.t, int64(1), e.Event.Fields["n"], "whole numbers stay whole")
			messages = append(messages, e.Event.Message)
			if err := st.DropStashed(ctx, id, as, e.Event); err != nil {
				return err
			}
		}
		return err
	})
	return messages
}

func stashed(t *testing.T, s *stage) {
	s.do(func(st decisions.Store) error {
		now, err := st.Now(ctx)
		require.NoError(t, err)
		later := now.Add(time.Hour)
		if err := st.Stash(ctx, []decisions.Stashed{early(guest("a"), "m-2", later), early(guest("a"), "m-1", later)}); err != nil {
			return err
		}
		return st.Stash(ctx, []decisions.Stashed{early(guest("a"), "m-0", now.Add(-time.Second)), early(guest("b"), "m-3", later)})
	})
	require.Equal(t, []string{"m-2", "m-1"}, unstash(s, "visit/v-1", guest("a")))
	require.Empty(t, unstash(s, "visit/v-1", guest("a")))
	require.Equal(t, []string{"m-3"}, unstash(s, "visit/v-1", guest("a"), guest("b")))
}

// stashedForASaga checks that events which are kept for a saga do not expire and are for that saga, and then for the next one.
func stashedForASaga(t *testing.T, s *stage) {
	keep := func(by decisions.Association, message, id string, shared bool) {
		s.do(func(st decisions.Store) error {
			now, err := st.Now(ctx)
			require.NoError(t, err)
			e := early(by, message, now.Add(-time.Hour))
			e.For, e.Shared = id, shared
			return st.Stash(ctx, []decisions.Stashed{e})
		})
	}
	key := decisions.Association{Saga: "visit", Value: "v-1"}
	keep(guest("a"), "m-1", "visit/v-1", false)
	keep(guest("b"), "m-1", "visit/v-1", false)
	keep(guest("a"), "m-2", "visit/v-1", false)
	keep(guest("a"), "m-3", "visit/v-1", true)
	keep(guest("a"), "m-3", "visit/v-2", true)
	keep(guest("a"), "m-4", "visit/v-1", false)
	keep(key, "m-5", "visit/v-1", false)
	find := func(id string) (messages []string) {
		s.do(func(st decisions.Store) error {
			found, err := st.FindStashed(ctx, id, nil, arrivals(guest("a"), guest("b"), key))
			for _, e := range found {
				messages = append(messages, e.Event.Message)
			}
			return err
		})
		return messages
	}
	require.Equal(t, []string{"m-1", "m-1", "m-2", "m-3", "m-4", "m-5"}, find("visit/v-1"))
	s.do(func(st decisions.Store) error {
		return st.DropStashed(ctx, "visit/v-1", []decisions.Association{guest("a")}, early(guest("a"), "m-1", time.Time{}).Event)
	})
	require.Equal(t, []string{"m-2", "m-3", "m-4", "m-5"}, find("visit/v-1"), "both copies are used")
	require.Equal(t, []string{"m-3"}, find("visit/v-2"))
	keep(guest("a"), "m-4", "", false) // it is there twice when the saga leaves it
	s.do(func(st decisions.Store) error {
		left, err := st.LeftBy(ctx, "visit/v-1")
		require.Equal(t, []decisions.Association{guest("a")}, left)
		if err != nil {
			return err
		}
		return st.OpenStashed(ctx, "visit/v-1", nil, time.Hour)
	})
	s.save(s.begun("v-1"))
	s.abandon("v-1")
	require.Equal(t, []string{"m-2", "m-4"}, find("visit/v-1"), "the end deletes the events that are for no other saga")
	require.Equal(t, []string{"m-2", "m-3"}, find("visit/v-2")[:2])
	require.NotContains(t, find("visit/v-3"), "m-3")
	require.Equal(t, []string{"m-2"}, find("visit/v-3")[:1])
}

// stashedWhileASagaRuns checks that an event for the next saga does not expire while a saga with its association runs.
func stashedWhileASagaRuns(t *testing.T, s *stage) {
	s.save(s.begun("v-1"))
	stash := func(by decisions.Association, message string) {
		s.do(func(st decisions.Store) error {
			now, err := st.Now(ctx)
			require.NoError(t, err)
			return st.Stash(ctx, []decisions.Stashed{early(by, message, now.Add(-time.Hour))})
		})
	}
	stash(guest("g-v-1"), "m-1")
	stash(guest("other"), "m-2")
	stash(guest("other"), "m-3") // deletes m-2
	require.Equal(t, []string{"m-1"}, unstash(s, "visit/v-2", guest("g-v-1"), guest("other")))
}

func stashedBytes(t *testing.T, s *stage) {
	var sizes []int64
	for _, after := range []time.Duration{0, -time.Hour, time.Hour, time.Hour} {
		s.do(func(st decisions.Store) error {
			now, err := st.Now(ctx)
			require.NoError(t, err)
			bytes, err := st.StashBytes(ctx, guest("a"), []string{"", "visit/v-1"}, saga.Event{})
			require.NoError(t, err)
			require.Equal(t, bytes[""], bytes["visit/v-1"])
			sizes = append(sizes, bytes[""])
			if after == 0 {
				return nil
			}
			return st.Stash(ctx, []decisions.Stashed{early(guest("a"), fmt.Sprint("m-", len(sizes)), now.Add(after)), early(guest("b"), "m", now.Add(time.Hour))})
		})
	}
	require.Equal(t, []int64{0, 0, 0}, sizes[:3])
	require.Greater(t, sizes[3], int64(50))
	require.Less(t, sizes[3], int64(1000))
}

// stashedOfTypes checks that a query finds the events of its types, in parts.
func stashedOfTypes(t *testing.T, s *stage) {
	long := strings.Repeat("m", 300) // its hash is stored
	var all []string
	s.do(func(st decisions.Store) error {
		now, err := st.Now(ctx)
		require.NoError(t, err)
		for n, id := range []string{"m-1", long + "1", "m-2", long + "2", "m-3"} {
			other := early(guest("a"), id, now.Add(time.Hour))
			other.Event.Type = "ArrivedLate"
			e := early(guest("a"), id, now.Add(time.Hour))
			if n == 2 {
				e.For, other.For = "visit/v-1", "visit/v-1"
			}
			all = append(all, id)
			if err := st.Stash(ctx, []decisions.Stashed{other, e}); err != nil {
				return err
			}
		}
		return nil
	})
	find := func(after int64, limit int) (messages []string, last int64) {
		s.do(func(st decisions.Store) error {
			q := arrivals(guest("a"))
			q.After, q.Limit = after, limit
			found, err := st.FindStashed(ctx, "visit/v-1", nil, q)
			for _, e := range found {
				require.Equal(t, "Arrived", e.Event.Type)
				messages, last = append(messages, e.Event.Message), e.Position
			}
			return err
		})
		return messages, last
	}
	found, _ := find(0, 0)
	require.Equal(t, all, found)
	found, last := find(0, 2)
	require.Equal(t, all[:2], found)
	found, last = find(last, 2)
	require.Equal(t, all[2:4], found)
	found, _ = find(last, 2)
	require.Equal(t, all[4:], found)
	s.do(func(st decisions.Store) error {
		kept, err := st.FindStashed(ctx, "visit/v-1", nil, decisions.StashQuery{})
		require.Len(t, kept, 2, "all events for the saga")
		require.NoError(t, err)
		none, err := st.FindStashed(ctx, "visit/v-1", nil, decisions.StashQuery{Wanted: []decisions.Wanted{}})
		require.Empty(t, none, "no event is wanted")
		return err
	})
}

func stashedTwice(t *testing.T, s *stage) {
	for range 2 {
		s.do(func(st decisions.Store) error {
			now, err := st.Now(ctx)
			require.NoError(t, err)
			other := early(guest("a"), "m-1", now.Add(time.Hour))
			other.Event.Hop = "window"
			return st.Stash(ctx, []decisions.Stashed{early(guest("a"), "m-1", now.Add(time.Hour)), other})
		})
	}
	require.Equal(t, []string{"m-1", "m-1"}, unstash(s, "visit/v-1", guest("a")), "one of each hop")
}

func lock(s *stage, name, id string) (granted bool) {
	s.t.Helper()
	s.do(func(st decisions.Store) (err error) {
		granted, err = st.Lock(ctx, name, id)
		return err
	})
	return granted
}

func unlock(s *stage, id string) (granted []string) {
	s.t.Helper()
	s.do(func(st decisions.Store) (err error) {
		granted, err = st.Unlock(ctx, id)
		return err
	})
	return granted
}

func locked(t *testing.T, s *stage) {
	require.True(t, lock(s, "room", "visit/v-1"))
	require.True(t, lock(s, "room", "visit/v-1"), "it has it already")
	require.False(t, lock(s, "room", "visit/v-2"))
	require.False(t, lock(s, "room", "visit/v-3"))
	require.True(t, lock(s, "garden", "visit/v-4"))
	require.Equal(t, []string{"visit/v-2"}, unlock(s, "visit/v-1"))
	s.do(func(st decisions.Store) error {
		for id, want := range map[string]bool{"visit/v-1": false, "visit/v-2": true, "visit/v-3": false} {
			granted, err := st.Granted(ctx, id)
			require.NoError(t, err)
			require.Equal(t, want, granted, id)
		}
		return nil
	})
	require.Empty(t, unlock(s, "visit/v-1"), "it has nothing any more")
	require.Equal(t, []string{"visit/v-3"}, unlock(s, "visit/v-2"))
	require.Empty(t, unlock(s, "visit/v-3"))
}

func gaveUp(t *testing.T, s *stage) {
	require.True(t, lock(s, "room", "visit/v-1"))
	require.False(t, lock(s, "room", "visit/v-2"))
	require.False(t, lock(s, "room", "visit/v-3"))
	require.Empty(t, unlock(s, "visit/v-2"))
	require.Equal(t, []string{"visit/v-3"}, unlock(s, "visit/v-1"))
}

// lockedByAnyName uses names that an index or a text of Postgres cannot hold.
func lockedByAnyName(t *testing.T, s *stage) {
	for i, name := range []string{strings.Repeat("x", 300), strings.Repeat("x", 300) + "y", "a\x00b", ""} {
		first, next := fmt.Sprintf("visit/%d-1", i), fmt.Sprintf("visit/%d-2", i)
		require.True(t, lock(s, name, first))
		require.False(t, lock(s, name, next))
		require.Equal(t, []string{next}, unlock(s, first))
		require.Empty(t, unlock(s, next))
	}
}

// expired checks that events that no saga has taken are deleted when later ones are stashed.
func expired(t *testing.T, s *stage) {
	vain := guest("nobody")
	s.do(func(st decisions.Store) error {
		now, err := st.Now(ctx)
		require.NoError(t, err)
		return st.Stash(ctx, []decisions.Stashed{early(vain, "m-1", now.Add(-time.Hour)), early(vain, "m-2", now.Add(-time.Hour))})
	})
	s.do(func(st decisions.Store) error {
		now, err := st.Now(ctx)
		require.NoError(t, err)
		return st.Stash(ctx, []decisions.Stashed{early(guest("a"), "m-3", now.Add(time.Hour))})
	})
	// Only an event that was deleted can be stashed once more.
	s.do(func(st decisions.Store) error {
		now, err := st.Now(ctx)
		require.NoError(t, err)
		return st.Stash(ctx, []decisions.Stashed{early(vain, "m-1", now.Add(time.Hour))})
	})
	require.Equal(t, []string{"m-1"}, unstash(s, "visit/v-1", vain))
}

func clock(t *testing.T, s *stage) {
	var last time.Time
	for range 3 {
		s.do(func(st decisions.Store) error {
			now, err := st.Now(ctx)
			require.False(t, now.Before(last))
			last = now
			return err
		})
	}
}

func absent(t *testing.T, s *stage) {
	_, there := s.load("visit/v-1")
	require.False(t, there)
}

func ofEachType(t *testing.T, s *stage) {
	c := s.begun("v-1")
	other := decisions.Association{Saga: "stay", Variable: "guest", Value: "g-v-1"}
	c.Associations = append(c.Associations, other)
	s.save(c)
	s.do(func(st decisions.Store) error {
		found, _, err := st.Associated(ctx, []decisions.Association{other})
		require.Equal(t, map[decisions.Association][]string{other: {"visit/v-1"}}, found)
		return err
	})
}
