package sagadesk

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
)

//go:embed sql/forms.sql
var formsSQL string

//go:embed sql/began.sql
var beganSQL string

// A Question is a step of a saga that awaits an event which an operator may give.
type Question struct {
	ID   string `json:"id"` // the saga's
	Saga string `json:"saga"`
	Key  string `json:"key"`
	Step string `json:"step"`
	// Since is the time at which the step began. Due is the end of the time-out of the step or of the saga, whichever is earlier.
	Since  time.Time   `json:"since"`
	Due    *time.Time  `json:"due,omitempty"`
	Events []FormEvent `json:"events"`

	began int // version of the saga when the step began
}

// A FormEvent is an event with a form.
type FormEvent struct {
	Event string `json:"event"`
	// Title is the form's title, or else the event.
	Title  string       `json:"title"`
	Fields []saga.Field `json:"fields"`
}

// FormEvents returns the events that an operator may give to a step of d.
func FormEvents(d *saga.Definition, step string) (all []FormEvent) {
	for _, st := range d.Spec().Steps {
		if st.Name != step {
			continue
		}
		for _, a := range slices.Concat(st.Success, st.Failure) {
			if a.Form == nil {
				continue
			}
			f := FormEvent{a.Event, a.Form.Title, slices.Clone(a.Form.Fields)}
			if f.Title == "" {
				f.Title = a.Event
			}
			if f.Fields == nil {
				f.Fields = []saga.Field{}
			}
			all = append(all, f)
		}
	}
	return all
}

// QuestionsOf returns the questions of a saga.
func (d *Desk) QuestionsOf(ctx context.Context, g *Detail) ([]Question, error) {
	all := questionsOf(g)
	if len(all) == 0 {
		return nil, nil
	}
	if err := d.setBegan(ctx, all); err != nil {
		return nil, fmt.Errorf("questions of saga %s: %w", g.ID, explain(err))
	}
	return all, nil
}

// questionsOf returns the questions of a saga. It does not set Since.
func questionsOf(g *Detail) (all []Question) {
	if g.State.Ended() {
		return nil
	}
	var due *time.Time
	soonest := func(name string) {
		for _, a := range g.State.Deadlines {
			if a.Name == name && !a.Overdue && (due == nil || a.At.Before(*due)) {
				due = &a.At
			}
		}
	}
	for _, ss := range g.State.Steps {
		if ss.Phase != saga.Intent {
			continue
		}
		events := FormEvents(g.Definition, ss.Name)
		if len(events) == 0 {
			continue
		}
		due = nil
		soonest(saga.TimeoutName)
		soonest(ss.Name + "." + saga.TimeoutName)
		all = append(all, Question{ID: g.ID, Saga: g.Saga, Key: g.Key, Step: ss.Name, Due: due, Events: events, began: ss.Started})
	}
	return all
}

// Questions returns the questions of a page of sagas, oldest saga first. name selects a type of saga; "": all. A saga with several
// questions has several entries. The query searches all running and parked sagas whose definition has a form.
func (d *Desk) Questions(ctx context.Context, name string, p Page) (list []Question, next string, err error) {
	p.Oldest = true
	f := Filter{Saga: name, Statuses: []saga.Status{saga.Running, saga.Parked}}
	if f.forms, f.asking, err = d.forms(ctx, name); err != nil {
		return nil, "", fmt.Errorf("questions: %w", explain(err))
	}
	if len(f.forms) == 0 {
		return nil, "", p.Validate()
	}
	rows, next, err := d.List(ctx, f, p)
	if err != nil || len(rows) == 0 {
		return nil, "", err
	}
	if list, err = d.readQuestions(ctx, rows); err == nil {
		err = d.setBegan(ctx, list)
	}
	if err != nil {
		return nil, "", fmt.Errorf("questions: %w", explain(err))
	}
	return list, next, nil
}

// CountQuestions returns the number of sagas with a question, up to limit. It does not read the sagas' states, so it also
// counts a saga that is parked because its step could not use the event that came.
func (d *Desk) CountQuestions(ctx context.Context, limit int) (int, error) {
	f := Filter{Statuses: []saga.Status{saga.Running, saga.Parked}}
	var err error
	if f.forms, f.asking, err = d.forms(ctx, ""); err != nil {
		return 0, fmt.Errorf("count questions: %w", explain(err))
	}
	if len(f.forms) == 0 {
		return 0, nil
	}
	rows, _, err := d.List(ctx, f, Page{Limit: limit})
	return len(rows), err
}

// formBytes limits the memory of the definitions that forms reads.
const formBytes = 64 << 20

// forms returns the hashes of the stored definitions of a type that have a form, and the names of their steps with a form. It
// leaves out definitions that this program cannot read. Services store definitions of any number, so it reads the smallest ones that
// formBytes suffices for: more than 1,000 of 3 kB, or 200 of 30 kB.
func (d *Desk) forms(ctx context.Context, name string) (hashes, steps []string, err error) {
	rows, err := d.cfg.Pool.Query(ctx, formsSQL, pg.Args{
		"saga": name, "each": decisions.DefinitionBytes(0), "byte": decisions.DefinitionBytes(1) - decisions.DefinitionBytes(0), "bytes": formBytes,
	})
	if err != nil {
		return nil, nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, nil, err
	}
	asking := make(map[string]bool)
	for _, hash := range found {
		def, err := d.definitions.Of(ctx, hash)
		var mistakes saga.Mistakes
		if errors.As(err, &mistakes) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		any := false
		for _, st := range def.Spec().Steps {
			if len(FormEvents(def, st.Name)) > 0 {
				asking[st.Name], any = true, true
			}
		}
		if any {
			hashes = append(hashes, hash)
		}
	}
	return hashes, slices.Sorted(maps.Keys(asking)), nil
}

// readQuestions reads the states of sagas one by one, and returns their questions in the order of rows. A saga whose row cannot be read has
// no question here; the page of the saga shows the error.
func (d *Desk) readQuestions(ctx context.Context, rows []Row) (all []Question, err error) {
	for _, r := range rows {
		g, err := d.get(ctx, d.cfg.Pool, r.ID, "")
		switch {
		case errors.Is(err, decisions.ErrNotFound): // it was removed since the list was read
			continue
		case err != nil && ctx.Err() == nil && pg.Classify(err) == pg.Unknown:
			continue
		case err != nil:
			return nil, fmt.Errorf("saga %s: %w", r.ID, err)
		}
		all = append(all, questionsOf(g)...)
	}
	return all, nil
}

// setBegan sets Since of each question, from the saga's log.
func (d *Desk) setBegan(ctx context.Context, all []Question) error {
	ids, versions := make([]string, len(all)), make([]int, len(all))
	for i, q := range all {
		ids[i], versions[i] = q.ID, min(max(q.began, 0), math.MaxInt32)
	}
	rows, err := d.cfg.Pool.Query(ctx, beganSQL, pg.Args{"ids": ids, "versions": versions})
	if err != nil {
		return err
	}
	var i int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&i, &at}, func() error {
		all[i-1].Since = at
		return nil
	})
	return err
}
