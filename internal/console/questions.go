package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// questionsFacts have one page of the list that troupe saga questions prints.
type questionsFacts struct {
	Database string `json:"database"`
	sagadesk.QuestionPage

	Databases []string   `json:"-"`
	Asked     url.Values `json:"-"`
}

// With returns the query for the same list with another value.
func (f questionsFacts) With(name, value string) string { return with(f.Asked, name, value) }

func readQuestions(ctx context.Context, a *ask) (any, error) {
	page := sagadesk.Page{After: a.get("after")}
	var err error
	if page.Limit, err = a.limit(); err != nil {
		return nil, err
	}
	if err := page.Validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", err)
	}
	s, err := a.deciding(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.sagas.Questions(ctx, a.get("saga"), page)
	if err != nil {
		return nil, err
	}
	found.Questions = orEmpty(found.Questions)
	return questionsFacts{Database: s.Name, QuestionPage: found, Databases: a.names(), Asked: a.values}, nil
}

// answerFacts are the forms of a step that waits for an operator, or the preview of an answer.
type answerFacts struct {
	Database string `json:"database"`
	ID       string `json:"saga"`
	Step     string `json:"step"`
	// Question is null if the step does not wait for an operator now.
	Question *sagadesk.Question `json:"question"`
	// Would is the decision that the answer causes; null: no values were given.
	Would *actFacts `json:"would"`

	saga *sagadesk.Detail

	Event string            `json:"-"` // event of the form that was filled in
	Texts map[string]string `json:"-"` // texts that were entered, by field
	Wrong string            `json:"-"` // reason why they are refused
}

// Data returns the variables that the decision is about, by name.
func (f answerFacts) Data() []variable { return variablesOf(f.saga) }

func (f answerFacts) title() string { return "Answer " + f.Step + " · " + f.ID }

// StateHash is the hash of the saga's state that the page shows.
func (f answerFacts) StateHash() string { return f.saga.StateHash() }

// Filled returns the form that was filled in; nil: the question has no form for that event any more.
func (f answerFacts) Filled() *sagadesk.FormEvent {
	if f.Question == nil {
		return nil
	}
	for i, e := range f.Question.Events {
		if e.Event == f.Event {
			return &f.Question.Events[i]
		}
	}
	return nil
}

// Text returns the text that was entered for a field of an event.
func (f answerFacts) Text(event, name string) string {
	if f.Event != event {
		return ""
	}
	return f.Texts[name]
}

// inForm is the prefix of the names of a form's inputs.
const inForm = "field."

// answering returns the database of the request, and the facts of its step.
func (a *ask) answering(ctx context.Context) (*source, answerFacts, error) {
	s, err := a.database()
	if err != nil {
		return nil, answerFacts{}, err
	}
	f := answerFacts{Database: s.Name, ID: a.values.Get("id"), Step: a.get("step"), Event: a.get("event"), Texts: make(map[string]string)}
	if f.Step == "" {
		return nil, f, refuse(http.StatusBadRequest, "step: want the step that awaits the answer")
	}
	g, err := s.sagas.Get(ctx, f.ID)
	if err != nil {
		return nil, f, err
	}
	f.saga = g
	all, err := s.sagas.QuestionsOf(ctx, g)
	if err != nil {
		return nil, f, err
	}
	if i := slices.IndexFunc(all, func(q sagadesk.Question) bool { return q.Step == f.Step }); i >= 0 {
		f.Question = &all[i]
	}
	for name, values := range a.values {
		if field, is := strings.CutPrefix(name, inForm); is {
			f.Texts[field] = values[0]
		}
	}
	return s, f, nil
}

// answer returns the operator's answer in the request. The parameter values has the fields as a JSON object; without it each
// field has a parameter of its own, with the prefix inForm.
func (a *ask) answer(f answerFacts) (e saga.Event, err error) {
	e = saga.Event{Kind: saga.ActAnswer, Step: f.Step, Type: f.Event, Actor: a.by.Name, Reason: a.by.Reason}
	text := strings.TrimSpace(a.values.Get("values"))
	form := f.Filled()
	switch {
	case e.Type == "":
		return e, refuse(http.StatusBadRequest, "event: want the event that is the answer")
	case len(text) > mostInput:
		return e, refuse(http.StatusUnprocessableEntity, "values: %d bytes: want at most %d", len(text), mostInput)
	case text != "":
		e.Fields, err = saga.ReadFields([]byte(text))
	case form != nil:
		e.Fields, err = sagadesk.ReadFormValues(*form, f.Texts)
	}
	if err != nil {
		return e, refuse(http.StatusUnprocessableEntity, "%s: %s", e.Type, err)
	}
	return e, nil
}

// readAnswer reads the forms of a step.
func readAnswer(ctx context.Context, a *ask) (any, error) {
	_, f, err := a.answering(ctx)
	return f, err
}

// actOnAnswer previews an answer, or gives it to the saga.
func actOnAnswer(ctx context.Context, a *ask) (any, string, error) {
	s, f, err := a.answering(ctx)
	if err != nil {
		return nil, "", err
	}
	preview := a.typed("do") == "preview"
	if !preview {
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
	}
	e, err := a.answer(f)
	if err != nil {
		return nil, "", wrongAnswer(f, err)
	}
	before, err := s.sagas.Get(ctx, f.ID)
	if err != nil {
		return nil, "", err
	}
	if preview {
		would, err := s.sagas.Preview(ctx, f.ID, e)
		if err != nil {
			return nil, "", wrongAnswer(f, err)
		}
		facts := actFactsOf(s.Name, before.Status, would, false)
		facts.StateHash = cmp.Or(a.get("state_hash"), before.StateHash()) // the form's hash: the form showed the variables
		f.Would = &facts
		return f, "", nil
	}
	did, err := s.sagas.ActIfUnchanged(ctx, f.ID, e, a.get("state_hash"))
	if err != nil {
		return nil, "", wrongAnswer(f, err)
	}
	f.Question = nil
	facts := actFactsOf(s.Name, before.Status, did, true)
	f.Would = &facts
	return f, "/saga?" + url.Values{"db": {s.Name}, "id": {did.ID}}.Encode(), nil
}

// wrongAnswer returns err with the facts of the form, so that the page shows both.
func wrongAnswer(f answerFacts, err error) error {
	f.Wrong = err.Error()
	return retold{err, f}
}
