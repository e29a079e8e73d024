package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// actFacts are the preview or the result of an action on a saga: what troupe saga retry and the other actions print.
type actFacts struct {
	Database  string           `json:"database"`
	ID        string           `json:"saga"`
	Done      bool             `json:"done"`
	Action    saga.Event       `json:"action"`
	Before    saga.Status      `json:"status_before"`
	Status    saga.Status      `json:"status"`
	Steps     []saga.StepState `json:"steps"`
	Commands  []message        `json:"commands"`
	Events    []message        `json:"events"`
	Scheduled []saga.Armed     `json:"scheduled"`
	Cancelled []string         `json:"cancelled"`
	Moments   []saga.Moment    `json:"moments"`
	Alert     string           `json:"alert"`
	// StateHash is the hash of the state before the action, in a preview. An action that is sent with it is refused if the state has
	// changed since.
	StateHash string `json:"state_hash,omitempty"`
	// Ignored is the reason why nothing was started: a saga of the key exists, and the other fields describe it.
	Ignored string `json:"ignored,omitempty"`

	Result  string  `json:"-"` // the step's outputs, as they were entered
	Refused string  `json:"-"`
	Spec    drawing `json:"-"` // the steps after the action
}

// A message is a command or an event that the decision sends.
type message struct {
	Step      string         `json:"step,omitempty"`
	Operation string         `json:"operation,omitempty"`
	Hop       string         `json:"hop,omitempty"`
	Type      string         `json:"type"`
	Doubt     bool           `json:"doubt,omitempty"`
	Fields    map[string]any `json:"fields"`
}

func (f actFacts) title() string { return actionName(f.Action) + " · " + f.ID }

// Sets reports whether the action sets variables.
func (f actFacts) Sets() bool { return f.Action.Kind == saga.ActSet }

// Takes reports whether the action accepts a step's outputs, or variables.
func (f actFacts) Takes() bool {
	return f.Sets() || f.Action.Kind == saga.ActSkip || f.Action.Kind == saga.ActResolve && f.Action.Happened
}

// Final reports whether the action cannot be undone.
func (f actFacts) Final() bool {
	return f.Action.Kind != saga.ActRetry && f.Action.Kind != saga.ActResume
}

// actionName returns a readable name of an action.
func actionName(e saga.Event) string {
	switch e.Kind {
	case saga.ActRetry:
		return "Retry " + e.Step
	case saga.ActSkip:
		return "Skip " + e.Step
	case saga.ActResolve:
		if e.Happened {
			return "Resolve " + e.Step + ": it happened"
		}
		return "Resolve " + e.Step + ": it did not happen"
	case saga.ActCompensate:
		return "Compensate"
	case saga.ActCancel:
		return "Cancel"
	case saga.ActResume:
		return "Resume"
	case saga.ActSet:
		return "Set variables"
	case saga.ActAnswer:
		return "Answer " + e.Step
	}
	return "Abandon"
}

// happened returns the value of Resolve's parameter happened.
func happened(e saga.Event) string {
	switch {
	case e.Kind != saga.ActResolve:
		return ""
	case e.Happened:
		return "yes"
	}
	return "no"
}

// action returns the action in the request.
func (a *ask) action() (e saga.Event, err error) {
	e = saga.Event{Kind: saga.Kind(a.typed("do")), Step: a.get("step"), Actor: a.by.Name, Reason: a.by.Reason}
	if !e.Kind.Action() || e.Kind == saga.ActAnswer {
		return e, refuse(http.StatusBadRequest, "do %q: want retry, skip, resolve, compensate, cancel, resume, set or abandon", e.Kind)
	}
	if e.Kind == saga.ActResolve {
		switch a.get("happened") {
		case "yes":
			e.Happened = true
		case "no":
		default:
			return e, refuse(http.StatusBadRequest, "happened: want yes (it took effect) or no (it did not, and never will)")
		}
	}
	if text := a.typed("result"); text != "" {
		if e.Fields, err = saga.ReadFields([]byte(text)); err != nil {
			return e, refuse(http.StatusUnprocessableEntity, `result: %s: such as {"payment_id": "p-1"}`, err)
		}
	}
	return e, nil
}

// readSagaAct reads the preview.
func readSagaAct(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	id, result := a.values.Get("id"), a.get("result")
	e, err := a.action()
	if err != nil {
		return nil, err
	}
	g, err := s.sagas.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	would, err := s.sagas.Preview(ctx, id, e)
	if err != nil {
		return nil, err
	}
	f := actFactsOf(s.Name, g.Status, would, false)
	f.Result, f.StateHash, f.Spec = result, g.StateHash(), drawSteps(g.Definition.Spec(), &would.State)
	return f, nil
}

func actOnSaga(ctx context.Context, a *ask) (any, string, error) {
	s, err := a.database()
	if err != nil {
		return nil, "", err
	}
	if err := a.by.CheckReasoned(); err != nil {
		return nil, "", err
	}
	id := a.values.Get("id")
	e, err := a.action()
	if err != nil {
		return nil, "", err
	}
	if e.Kind == saga.ActSet && len(e.Fields) == 0 {
		return nil, "", refuse(http.StatusUnprocessableEntity, `result: name the variables, such as {"quantity": 2}`)
	}
	before, err := s.sagas.Get(ctx, id)
	if err != nil {
		return nil, "", err
	}
	did, err := s.sagas.ActIfUnchanged(ctx, id, e, a.get("state_hash"))
	if err != nil {
		return nil, "", err
	}
	return actFactsOf(s.Name, before.Status, did, true), "/saga?" + url.Values{"db": {s.Name}, "id": {id}}.Encode(), nil
}

func actFactsOf(database string, before saga.Status, d decisions.Decided, done bool) actFacts {
	f := actFacts{
		Database: database, ID: d.ID, Done: done, Action: d.Event, Before: before, Status: d.State.Status, Steps: orEmpty(d.State.Steps),
		Commands: []message{}, Events: []message{}, Scheduled: orEmpty(d.Effects.Scheduled), Cancelled: orEmpty(d.Effects.Cancelled),
		Moments: orEmpty(d.Effects.Moments), Alert: d.Effects.Alert, Ignored: d.Effects.Ignored,
	}
	for _, c := range d.Effects.Commands {
		f.Commands = append(f.Commands, message{c.Step, c.Operation, c.Hop, c.Type, c.Doubt, c.Fields})
	}
	for _, e := range d.Effects.Events {
		f.Events = append(f.Events, message{Hop: e.Hop, Type: e.Type, Fields: e.Fields})
	}
	return f
}

// JSON returns the message's fields as JSON.
func (m message) JSON() string {
	text, _ := json.Marshal(m.Fields)
	return string(text)
}
