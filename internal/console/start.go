package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// startFacts are the preview of a start: what troupe saga start --dry-run prints.
type startFacts struct {
	Database   string `json:"database"`
	Definition string `json:"definition"` // hash
	// Would is the decision that would be made; null: no key was given.
	Would *actFacts `json:"would"`

	of    *saga.Definition
	Asked url.Values        `json:"-"`
	Wrong map[string]string `json:"-"` // the errors, by field
}

func (f startFacts) title() string { return "Start " + f.of.String() }

// Name returns a readable name of the definition.
func (f startFacts) Name() string { return f.of.String() }

// Spec returns the definition's spec.
func (f startFacts) Spec() saga.Spec { return f.of.Spec() }

// Open reports whether the fields for the hop are shown open: one is filled in or wrong. They are needed only for the first
// saga of a type.
func (f startFacts) Open() bool {
	return f.Asked.Get("hop") != "" || f.Wrong["hop"] != ""
}

// Example returns an example of an input, with a variable of the definition.
func (f startFacts) Example() string {
	for _, name := range slices.Sorted(maps.Keys(f.Spec().Data)) {
		if name != f.Spec().Key {
			return fmt.Sprintf(`{%q: …}`, name)
		}
	}
	return "{}"
}

// wrongField is an error about a field of a form.
type wrongField struct {
	error
	field string
}

func (w wrongField) Unwrap() error { return w.error }

const mostInput = 64 << 10

// startRequest returns the start in the request, of an existing definition.
func (a *ask) startRequest(d *saga.Definition) (r sagadesk.StartRequest, err error) {
	wrong := func(field, format string, args ...any) error {
		return wrongField{refuse(http.StatusUnprocessableEntity, field+": "+format, args...), field}
	}
	r = sagadesk.StartRequest{Definition: d, Hop: a.typed("hop"), Group: a.typed("group"), Avro: a.get("avro") != "", Actor: a.by.Name, Reason: a.by.Reason}
	key, input := a.values.Get("key"), strings.TrimSpace(a.values.Get("input"))
	switch {
	case key == "":
		return r, wrong("key", "want a value of %s", d.Spec().Key)
	case len(input) > mostInput:
		return r, wrong("input", "%d bytes: want at most %d", len(input), mostInput)
	case r.Hop == "" && (r.Group != "" || r.Avro):
		return r, wrong("hop", "a group and Avro need a hop: set that too")
	}
	if r.Hop != "" {
		if _, err := topics.ParseHop(r.Hop); err != nil {
			return r, wrong("hop", "%s", err)
		}
	}
	if input != "" {
		if r.Fields, err = saga.ReadFields([]byte(input)); err != nil {
			return r, wrong("input", "%s", err)
		}
	}
	if r.Fields, err = d.WithKey(r.Fields, key); err == nil {
		_, _, err = d.Start(r.Fields)
	}
	if err != nil {
		return r, wrong("input", "%s", err)
	}
	return r, nil
}

func noHop(err error) error {
	if errors.Is(err, sagadesk.ErrNoHop) {
		return wrongField{refuse(http.StatusUnprocessableEntity, "hop: %s", err), "hop"}
	}
	return err
}

// starting returns the database and the definition of a start.
func (a *ask) starting(ctx context.Context) (*source, startFacts, error) {
	s, err := a.database()
	if err != nil {
		return nil, startFacts{}, err
	}
	hash := a.get("hash")
	if hash == "" {
		return nil, startFacts{}, refuse(http.StatusBadRequest, "hash: want the hash of a definition")
	}
	d, err := s.sagas.Definition(ctx, hash)
	if err != nil {
		return nil, startFacts{}, err
	}
	return s, startFacts{Database: s.Name, Definition: d.Hash(), of: d, Asked: a.values}, nil
}

// readStart reads the form and, with a key, the preview.
func readStart(ctx context.Context, a *ask) (any, error) {
	s, f, err := a.starting(ctx)
	if err != nil || !a.values.Has("key") {
		return f, err
	}
	r, err := a.startRequest(f.of)
	if err != nil {
		return nil, wrongly(f, err)
	}
	would, err := s.sagas.PreviewStart(ctx, r)
	if err != nil {
		return nil, wrongly(f, noHop(err))
	}
	facts := actFactsOf(s.Name, "", would, false)
	f.Would = &facts
	return f, nil
}

// wrongly returns err with the facts of the form, which show it at its field.
func wrongly(f startFacts, err error) error {
	var wrong wrongField
	if !errors.As(err, &wrong) {
		return err
	}
	f.Wrong = map[string]string{wrong.field: err.Error()}
	return retold{err, f}
}

func actOnStart(ctx context.Context, a *ask) (any, string, error) {
	if err := a.by.CheckReasoned(); err != nil {
		return nil, "", err
	}
	s, f, err := a.starting(ctx)
	if err != nil {
		return nil, "", err
	}
	r, err := a.startRequest(f.of)
	if err != nil {
		return nil, "", wrongly(f, err)
	}
	did, err := s.sagas.Start(ctx, r)
	if err != nil {
		return nil, "", wrongly(f, noHop(err))
	}
	done := actFactsOf(s.Name, "", did, did.Effects.Ignored == "")
	return done, "/saga?" + url.Values{"db": {s.Name}, "id": {did.ID}}.Encode(), nil
}
