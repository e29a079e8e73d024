package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// moveFacts are the preview of a move of sagas from one definition to another: the lines of troupe saga migrate --dry-run,
// counted.
type moveFacts struct {
	Database string `json:"database"`
	From     string `json:"from"` // hashes
	To       string `json:"to"`
	sagaSample
	Changes  []saga.Change    `json:"changes"`  // from From to To
	Findings []verify.Finding `json:"findings"` // of the verifier, in To

	from, to *saga.Definition
}

func (f moveFacts) title() string { return "Move to " + f.to.String() }

// FromName returns a readable name of the definition that the sagas run on.
func (f moveFacts) FromName() string { return f.from.String() }

// ToName returns a readable name of the definition that they would move to.
func (f moveFacts) ToName() string { return f.to.String() }

// migration returns the migration in the request.
func (a *ask) migration(ctx context.Context) (s *source, m sagadesk.Migration, err error) {
	if s, err = a.database(); err != nil {
		return nil, m, err
	}
	for _, one := range []struct {
		name string
		d    **saga.Definition
	}{{"from", &m.From}, {"to", &m.To}} {
		hash := a.get(one.name)
		if hash == "" {
			return nil, m, refuse(http.StatusBadRequest, "%s: want the hash of a definition", one.name)
		}
		if *one.d, err = s.sagas.Definition(ctx, hash); err != nil {
			return nil, m, err
		}
	}
	if err := m.Validate(); err != nil {
		return nil, m, refuse(http.StatusBadRequest, "%s", err)
	}
	m.Actor, m.Reason = a.by.Name, a.by.Reason
	return s, m, nil
}

// readMove reads the preview.
func readMove(ctx context.Context, a *ask) (any, error) {
	s, m, err := a.migration(ctx)
	if err != nil {
		return nil, err
	}
	f := moveFacts{
		Database: s.Name, From: m.From.Hash(), To: m.To.Hash(), from: m.From, to: m.To,
		Changes: orEmpty(saga.Diff(m.From, m.To)), Findings: findingsOf(ctx, m.To),
	}
	f.sagaSample, err = sampleSagas(func(add func(id, can, obstacle string) error) error {
		return s.sagas.Plan(ctx, m, func(one sagadesk.Move) error { return add(one.ID, "", one.Obstacle) })
	})
	return f, err
}

var moveWork = &workKind{
	Name: "Move of sagas", List: "/definitions", Title: "Definitions", Object: "Saga", Page: "/saga", Refused: "Stay as they are",
}

// actOnMove begins a Work that moves the sagas.
func actOnMove(ctx context.Context, a *ask) (any, string, error) {
	if err := a.by.CheckReasoned(); err != nil {
		return nil, "", err
	}
	s, m, err := a.migration(ctx)
	if err != nil {
		return nil, "", err
	}
	uses, err := s.sagas.Definitions(ctx)
	if err != nil {
		return nil, "", err
	}
	one := &Work{kind: moveWork, Database: s.Name, Chosen: url.Values{"from": {m.From.Hash()}, "to": {m.To.Hash()}}.Encode()}
	for _, use := range uses {
		if use.Definition == m.From.Hash() {
			one.Total = use.Open
		}
	}
	return a.begin(one, func(ctx context.Context, tell func(func(*Work))) error {
		return s.sagas.Migrate(ctx, m, func(did sagadesk.Move) error {
			tell(func(w *Work) { w.tried(did.ID, did.Obstacle) })
			return nil
		})
	})
}
