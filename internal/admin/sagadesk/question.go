package sagadesk

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
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

// A QuestionPage has the questions of a page of sagas. A saga with several questions has several entries.
type QuestionPage struct {
	Questions []Question `json:"questions"`
	// Next is the cursor for the next page; "": this was the last one.
	Next string `json:"next"`
	// LeftOut is the number of definitions that open sagas have and that were not read: this program cannot read them, or they would take
	// more than 64 MiB of memory. Their questions are missing here. The page of each saga has them.
	LeftOut int `json:"left_out_definitions"`
}

// Questions returns the questions of a page of sagas, oldest saga first. name selects a type of saga; "": all. The query searches all running
// and parked sagas.
func (d *Desk) Questions(ctx context.Context, name string, p Page) (found QuestionPage, err error) {
	p.Oldest = true
	f := Filter{Saga: name, Statuses: asking}
	if f.forms, found.LeftOut, err = d.forms(ctx, name); err != nil {
		return found, fmt.Errorf("questions: %w", explain(err))
	}
	if len(f.forms) == 0 {
		return found, p.Validate()
	}
	rows, next, err := d.List(ctx, f, p)
	if err != nil || len(rows) == 0 {
		return found, err
	}
	if found.Questions, err = d.readQuestions(ctx, rows); err == nil {
		err = d.setBegan(ctx, found.Questions)
	}
	if err != nil {
		return QuestionPage{}, fmt.Errorf("questions: %w", explain(err))
	}
	found.Next = next
	return found, nil
}

// CountQuestions returns the number of sagas with a question, up to limit. more is true if definitions were left out, as in QuestionPage: their
// sagas are not counted. CountQuestions does not read the sagas' states, so it also counts a saga that is parked because its step could not
// use the event that came.
func (d *Desk) CountQuestions(ctx context.Context, limit int) (n int, more bool, err error) {
	f := Filter{Statuses: asking}
	var leftOut int
	if f.forms, leftOut, err = d.forms(ctx, ""); err != nil {
		return 0, false, fmt.Errorf("count questions: %w", explain(err))
	}
	if len(f.forms) == 0 {
		return 0, leftOut > 0, nil
	}
	rows, _, err := d.List(ctx, f, Page{Limit: limit})
	return len(rows), leftOut > 0, err
}

// asking has the statuses of sagas that may have a question.
var asking = []saga.Status{saga.Running, saga.Parked}

// formBytes limits the memory of the definitions that forms reads.
const formBytes = 64 << 20

// forms returns the steps with a form of each definition that running or parked sagas of a type have, by the definition's hash. Services store
// definitions of any number, and a role that may start sagas can use any number, so it reads the smallest ones that formBytes suffices for:
// more than 1,000 of 3 kB, or 200 of 30 kB. leftOut counts the others, and the ones that this program cannot read.
func (d *Desk) forms(ctx context.Context, name string) (steps map[string][]string, leftOut int, err error) {
	var hashes []string
	err = d.cfg.Pool.QueryRow(ctx, formsSQL, pg.Args{
		"saga": name, "statuses": asking, "each": decisions.DefinitionBytes(0), "byte": decisions.DefinitionBytes(1) - decisions.DefinitionBytes(0), "bytes": formBytes,
	}).Scan(&hashes, &leftOut)
	if err != nil {
		return nil, 0, err
	}
	steps = make(map[string][]string)
	for _, hash := range hashes {
		def, err := d.definitions.Of(ctx, hash)
		var mistakes saga.Mistakes
		if errors.As(err, &mistakes) {
			leftOut++
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		for _, st := range def.Spec().Steps {
			if len(FormEvents(def, st.Name)) > 0 {
				steps[hash] = append(steps[hash], st.Name)
			}
		}
	}
	return steps, leftOut, nil
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
