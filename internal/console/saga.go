package console

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/fixture"
	"github.com/troupe-go/troupe/saga"
)

// shownEntries is the maximum number of entries of a log on a page; the newest are shown.
const shownEntries = 1000

// sagaFacts are the facts that troupe saga show prints.
type sagaFacts struct {
	Database string            `json:"database"`
	Saga     *sagadesk.Detail  `json:"saga"`
	Log      []decisions.Entry `json:"log"`
	Possible []saga.Event      `json:"possible"` // actions that the state allows
	// Questions are the saga's steps that wait for an operator.
	Questions []sagadesk.Question `json:"questions"`
}

// Recommended returns the action that most likely lets a parked saga continue as its definition says; nil: none is better than the
// others.
func (f sagaFacts) Recommended() *saga.Event { return recommended(f.Saga.Status, f.Possible) }

func recommended(status saga.Status, possible []saga.Event) *saga.Event {
	if status != saga.Parked {
		return nil
	}
	for _, kind := range []saga.Kind{saga.ActRetry, saga.ActResume, saga.ActCompensate} {
		for i, e := range possible {
			if e.Kind == kind {
				return &possible[i]
			}
		}
	}
	return nil
}

// Because explains the recommended action.
func (f sagaFacts) Because() string {
	switch f.Recommended().Kind {
	case saga.ActRetry:
		return "correct the cause first; then this sends the command of " + f.Recommended().Step + " again"
	case saga.ActResume:
		return "correct the cause first; then the saga continues"
	}
	return "undoes the steps that have taken effect"
}

// Others returns the possible actions without the recommended one and without the ones of Last.
func (f sagaFacts) Others() (all []saga.Event) {
	best := f.Recommended()
	for i, e := range f.Possible {
		if e.Kind != saga.ActAbandon && best != &f.Possible[i] {
			all = append(all, e)
		}
	}
	return all
}

// Last returns the actions after which the saga never continues.
func (f sagaFacts) Last() (all []saga.Event) {
	for _, e := range f.Possible {
		if e.Kind == saga.ActAbandon {
			all = append(all, e)
		}
	}
	return all
}

func (f sagaFacts) title() string { return f.Saga.ID }

func readSaga(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	g, err := s.sagas.Get(ctx, a.values.Get("id"))
	if err != nil {
		return nil, err
	}
	log, err := s.sagas.LogEnd(ctx, g.ID, shownEntries)
	if err != nil {
		return nil, err
	}
	questions, err := s.sagas.QuestionsOf(ctx, g)
	if err != nil {
		return nil, err
	}
	return sagaFacts{
		Database: s.Name, Saga: g, Log: orEmpty(log), Possible: orEmpty(sagadesk.Possible(g.Definition, g.State, g.Now)),
		Questions: orEmpty(questions),
	}, nil
}

func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// A variable is a variable of the saga, with the step that set it.
type variable struct {
	Name, Value, By string
}

// Data returns the variables, by name.
func (f sagaFacts) Data() []variable { return variablesOf(f.Saga) }

// variablesOf returns the variables of a saga, by name. The definition determines the step that sets a variable: each has one at most.
func variablesOf(g *sagadesk.Detail) []variable {
	by := make(map[string]string)
	for _, st := range g.Definition.Spec().Steps {
		for _, a := range slices.Concat(st.Success, st.Failure) {
			for name := range a.Set {
				by[name] = st.Name
			}
		}
	}
	var all []variable
	for _, name := range slices.Sorted(maps.Keys(g.State.Data)) {
		value, _ := json.Marshal(g.State.Data[name])
		all = append(all, variable{name, string(value), by[name]})
	}
	return all
}

// A happening is a line of the history: an operator's action, or a moment.
type happening struct {
	At   time.Time
	What string
	Step string
	Why  string
	By   string // the operator; "" for a moment
	Role string // the database role that wrote the entry, if By is set
	// Recorded is the server's time, if it differs from the entry's own time by more than 10 minutes.
	Recorded time.Time
}

// History returns the lines of the log's entries, the newest first.
func (f sagaFacts) History() []happening {
	var all []happening
	for _, e := range f.Log {
		var recorded time.Time
		if e.Misdated() {
			recorded = e.RecordedAt
		}
		if e.Event.Actor != "" {
			about := e.Event.Step
			if given := sagadesk.Given(f.Saga.Definition, e.Event); given != "" {
				about += " with " + given
			}
			all = append(all, happening{e.At, string(e.Event.Kind), about, e.Event.Reason, e.Event.Actor, e.Role, recorded})
		}
		for _, m := range e.Moments {
			all = append(all, happening{e.At, m.What, m.Step, m.Why, "", "", recorded})
		}
	}
	slices.Reverse(all)
	return all
}

// Messages returns the messages that the saga has received, the newest first.
func (f sagaFacts) Messages() []decisions.Entry {
	var all []decisions.Entry
	for _, e := range f.Log {
		if e.Event.Message != "" && !e.Event.Kind.Action() {
			all = append(all, e)
		}
	}
	slices.Reverse(all)
	return all
}

// Before returns the number of older entries of the log that are not shown.
func (f sagaFacts) Before() int {
	if len(f.Log) == 0 {
		return 0
	}
	return f.Log[0].Version - 1
}

// Took returns the time from the start to the end, or to now.
func (f sagaFacts) Took() time.Duration {
	if f.Saga.EndedAt != nil {
		return f.Saga.EndedAt.Sub(f.Saga.StartedAt)
	}
	return f.Saga.Now.Sub(f.Saga.StartedAt)
}

// Graph returns the graph of the steps.
func (f sagaFacts) Graph() drawing {
	return drawSteps(f.Saga.Definition.Spec(), &f.Saga.State)
}

// fixtureFacts are a saga's history as a test.
type fixtureFacts struct {
	Database string `json:"database"`
	ID       string `json:"id"`
	Test     string `json:"test"` // a Go file; "": none can be written
	Why      string `json:"why,omitempty"`
}

func (f fixtureFacts) title() string { return f.ID + " as a test" }

// readFixture returns the test that troupe saga fixture prints.
func readFixture(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	f := fixtureFacts{Database: s.Name, ID: a.values.Get("id")}
	text, err := fixture.Of(ctx, s.sagas, f.ID)
	if errors.Is(err, fixture.ErrNone) {
		f.Why, err = err.Error(), nil
	}
	f.Test = string(text)
	return f, err
}
