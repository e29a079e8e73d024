package decisions

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

// sagaColumns holds the arguments of insert_sagas.sql and update_sagas.sql.
type sagaColumns struct {
	ids, sagas, keys, definitions, statuses, steps, reasons, states []string
	was, versions                                                   []int32
	wakes, started, ended                                           []*time.Time
}

// grow allocates room for n sagas.
func (c *sagaColumns) grow(n int) {
	for _, texts := range []*[]string{&c.ids, &c.sagas, &c.keys, &c.definitions, &c.statuses, &c.steps, &c.reasons, &c.states} {
		*texts = make([]string, 0, n)
	}
	c.was, c.versions = make([]int32, 0, n), make([]int32, 0, n)
	c.wakes, c.started, c.ended = make([]*time.Time, 0, n), make([]*time.Time, 0, n), make([]*time.Time, 0, n)
}

func (c *sagaColumns) add(ch Change) error {
	s := ch.State
	state, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("saga %s: %w", s.ID(), err)
	}
	c.ids, c.sagas, c.keys = append(c.ids, s.ID()), append(c.sagas, s.Saga), append(c.keys, s.Key)
	c.definitions, c.statuses = append(c.definitions, s.Definition), append(c.statuses, string(s.Status))
	c.steps, c.reasons = append(c.steps, underWay(s)), append(c.reasons, storable(s.Reason))
	c.states = append(c.states, string(state))
	c.was, c.versions = append(c.was, int32(ch.Was)), append(c.versions, int32(s.Version))
	c.wakes, c.started = append(c.wakes, orNull(ch.WakeAt)), append(c.started, orNull(s.StartedAt))
	c.ended = append(c.ended, orNull(s.EndedAt))
	return nil
}

func (c *sagaColumns) args() pg.Args {
	return pg.Args{
		"ids": c.ids, "sagas": c.sagas, "keys": c.keys, "definitions": c.definitions, "was": c.was, "versions": c.versions,
		"statuses": c.statuses, "steps": c.steps, "reasons": c.reasons, "states": c.states, "wakes": c.wakes,
		"started": c.started, "ended": c.ended, "limit": len(c.ids),
	}
}

// underWay returns the names of the steps that await an answer, or that an operator must act on, for the column steps.
func underWay(s saga.State) string {
	var names []string
	for _, st := range s.Steps {
		switch st.Phase {
		case saga.Intent, saga.CompensateIntent, saga.GivenUp, saga.Doubt, saga.CompensateFailed:
			names = append(names, st.Name)
		}
	}
	return strings.Join(names, " ")
}

// storable returns s, with U+FFFD for each part that a text of Postgres cannot hold: a NUL, or bytes that are not UTF-8.
func storable(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type eventColumns struct {
	ids, kinds, events, moments, actors, reasons []string
	versions                                     []int32
	ats                                          []time.Time
}

// grow allocates room for n entries.
func (c *eventColumns) grow(n int) {
	for _, texts := range []*[]string{&c.ids, &c.kinds, &c.events, &c.moments, &c.actors, &c.reasons} {
		*texts = make([]string, 0, n)
	}
	c.versions, c.ats = make([]int32, 0, n), make([]time.Time, 0, n)
}

func (c *eventColumns) add(ch Change) error {
	for _, e := range ch.Entries {
		event, err := json.Marshal(e.Event)
		if err != nil {
			return fmt.Errorf("saga %s: %w", ch.State.ID(), err)
		}
		moments, err := json.Marshal(e.Moments)
		if err != nil {
			return err
		}
		if e.Moments == nil {
			moments = []byte("[]")
		}
		c.ids, c.versions, c.ats = append(c.ids, ch.State.ID()), append(c.versions, int32(e.Version)), append(c.ats, e.At)
		c.kinds, c.events = append(c.kinds, string(e.Event.Kind)), append(c.events, string(event))
		c.moments = append(c.moments, string(moments))
		c.actors, c.reasons = append(c.actors, storable(e.Event.Actor)), append(c.reasons, storable(e.Event.Reason))
	}
	return nil
}

func (c *eventColumns) args() pg.Args {
	return pg.Args{
		"ids": c.ids, "versions": c.versions, "ats": c.ats, "kinds": c.kinds, "events": c.events, "moments": c.moments,
		"actors": c.actors, "reasons": c.reasons,
	}
}

type associationColumns struct{ sagas, variables, values, ids []string }

func (c *associationColumns) add(a Association) {
	c.sagas, c.variables, c.values = append(c.sagas, a.Saga), append(c.variables, a.Variable), append(c.values, pgtext.Indexable(a.Value))
}

func (c *associationColumns) args() pg.Args {
	return pg.Args{"sagas": c.sagas, "variables": c.variables, "values": c.values, "limit": len(c.values)}
}

func columnsOf(as []Association) (c associationColumns) {
	for _, a := range as {
		c.add(a)
	}
	return c
}
