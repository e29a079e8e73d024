package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/saga/verify"
)

// moveFacts are the preview of a move of sagas from one definition to another: the lines of troupe saga migrate --dry-run,
// counted.
type moveFacts struct {
	Database string `json:"database"`
	From     string `json:"from"` // hashes
	To       string `json:"to"`
	// Looked is the number of sagas that were checked. More is true if there are others.
	Looked int  `json:"looked"`
	More   bool `json:"more"`
	Moves  int  `json:"moves"`
	// Stays has the sagas that would not move, counted by reason, the largest count first; at most 100 reasons.
	Stays    []staying        `json:"stays"`
	Changes  []saga.Change    `json:"changes"`  // from From to To
	Findings []verify.Finding `json:"findings"` // of the verifier, in To

	from, to *saga.Definition
}

// staying counts the sagas that one obstacle keeps from moving.
type staying struct {
	Why     string `json:"why"`
	Count   int    `json:"count"`
	Example string `json:"example"` // a saga's id
}

func (f moveFacts) title() string { return "Move to " + f.to.String() }

// FromName returns a readable name of the definition that the sagas run on.
func (f moveFacts) FromName() string { return f.from.String() }

// ToName returns a readable name of the definition that they would move to.
func (f moveFacts) ToName() string { return f.to.String() }

const (
	lookedMoves = 200 // sagas that a preview checks, so that it responds quickly
	mostStays   = 100
)

// migration returns the migration in the request.
func (a *ask) migration(ctx context.Context) (s *source, m coordinator.Migration, err error) {
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

var errEnough = errors.New("enough was looked at")

// readMove reads the preview.
func readMove(ctx context.Context, a *ask) (any, error) {
	s, m, err := a.migration(ctx)
	if err != nil {
		return nil, err
	}
	found := verify.Definition(m.To, verify.Options{})
	verify.Lines(m.To.JSON(), found)
	f := moveFacts{
		Database: s.Name, From: m.From.Hash(), To: m.To.Hash(), Stays: []staying{}, from: m.From, to: m.To,
		Changes: orEmpty(saga.Diff(m.From, m.To)), Findings: orEmpty(found),
	}
	stays := make(map[string]*staying)
	err = s.sagas.Plan(ctx, m, func(one coordinator.Move) error {
		if f.Looked == lookedMoves {
			return errEnough
		}
		f.Looked++
		switch st := stays[one.Obstacle]; {
		case one.Obstacle == "":
			f.Moves++
		case st == nil:
			stays[one.Obstacle] = &staying{one.Obstacle, 1, one.ID}
		default:
			st.Count++
		}
		return nil
	})
	if f.More = errors.Is(err, errEnough); err != nil && !f.More {
		return nil, err
	}
	for _, st := range stays {
		f.Stays = append(f.Stays, *st)
	}
	slices.SortFunc(f.Stays, func(a, b staying) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Why, b.Why)) })
	f.Stays = f.Stays[:min(len(f.Stays), mostStays)]
	return f, nil
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
	one := &Work{
		Do: "migrate", Database: s.Name, Chosen: url.Values{"from": {m.From.Hash()}, "to": {m.To.Hash()}}.Encode(), Actor: m.Actor, Reason: m.Reason,
	}
	for _, use := range uses {
		if use.Definition == m.From.Hash() {
			one.Total = use.Open
		}
	}
	err = a.works.begin(one, func(ctx context.Context, tell func(func(*Work))) error {
		return s.sagas.Migrate(ctx, m, func(did coordinator.Move) error {
			tell(func(w *Work) { w.moved(did) })
			return nil
		})
	})
	if err != nil {
		return nil, "", err
	}
	now, err := a.works.find(one.ID)
	return now, "/work?" + url.Values{"id": {one.ID}}.Encode(), err
}

func (w *Work) moved(m coordinator.Move) {
	if m.Obstacle == "" {
		w.Done++
	} else {
		w.refuse(m.ID, m.Obstacle)
	}
	w.Total = max(w.Total, w.Done+w.Refused) // sagas may have started meanwhile
}
