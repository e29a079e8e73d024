package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// definitionsFacts are the stored definitions, the latest of a saga first.
type definitionsFacts struct {
	Databases []definitionsOf `json:"databases"`
	Works     []Work          `json:"works"` // moves that are under way
}

type definitionsOf struct {
	Database    string         `json:"database"`
	Error       string         `json:"error,omitempty"`
	Definitions []sagadesk.Use `json:"definitions"`
}

func readDefinitions(ctx context.Context, a *ask) (any, error) {
	return definitionsFacts{ofEach(a.sources, func(s *source) definitionsOf {
		uses, err := s.sagas.Definitions(ctx)
		return definitionsOf{Database: s.Name, Error: errorText(err), Definitions: orEmpty(uses)}
	}), a.underWay("/definitions")}, nil
}

// None reports whether there is nothing to show.
func (f definitionsFacts) None() bool {
	return !slices.ContainsFunc(f.Databases, func(one definitionsOf) bool { return one.Error != "" || len(one.Definitions) > 0 })
}

// definitionFacts are one definition with the findings of troupe saga verify.
type definitionFacts struct {
	Database   string           `json:"database"`
	Hash       string           `json:"hash"`
	Definition json.RawMessage  `json:"definition"`
	Findings   []verify.Finding `json:"findings"`
	// Against is the hash of another definition of the saga, if the request names one, and Changes the differences from it.
	Against string        `json:"against"`
	Changes []saga.Change `json:"changes"`

	of     *saga.Definition
	Open   int            `json:"-"` // sagas that run on it
	Others []sagadesk.Use `json:"-"` // definitions of the saga
}

func (f definitionFacts) title() string { return f.of.String() }

// verifyLimit bounds the check of a definition for a page. A service may store a definition whose check takes hours.
const verifyLimit = 2 * time.Second

// findingsOf returns the verifier's findings; if the check takes longer than verifyLimit, one finding that says so.
func findingsOf(ctx context.Context, d *saga.Definition) []verify.Finding {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	found, err := verify.Within(ctx, d, verify.Options{})
	if err != nil {
		return []verify.Finding{{
			Rule: "not-checked", Severity: rule.Warning,
			Text: fmt.Sprintf("the definition was not checked, since that takes longer than %s: troupe saga verify checks it", verifyLimit),
		}}
	}
	verify.Lines(d.JSON(), found)
	return orEmpty(found)
}

func readDefinition(ctx context.Context, a *ask) (any, error) {
	s, err := a.database()
	if err != nil {
		return nil, err
	}
	hash := a.get("hash")
	if hash == "" {
		return nil, refuse(http.StatusBadRequest, "hash: want the hash of a definition")
	}
	d, err := s.sagas.Definition(ctx, hash)
	if err != nil {
		return nil, err
	}
	f := definitionFacts{Database: s.Name, Hash: d.Hash(), Definition: d.JSON(), Findings: findingsOf(ctx, d), Against: a.get("against"), Changes: []saga.Change{}, of: d}
	uses, err := s.sagas.Definitions(ctx)
	for _, use := range uses {
		switch {
		case use.Definition == d.Hash():
			f.Open = use.Open
		case use.Saga == d.Spec().Saga:
			f.Others = append(f.Others, use)
		}
	}
	if err != nil || f.Against == "" {
		return f, err
	}
	before, err := s.sagas.Definition(ctx, f.Against)
	if err != nil {
		return nil, err
	}
	f.Changes = orEmpty(saga.Diff(before, d))
	return f, nil
}

// Spec returns the definition's spec.
func (f definitionFacts) Spec() saga.Spec { return f.of.Spec() }

// Graph returns the graph of the steps, with the path of the first finding that has one.
func (f definitionFacts) Graph() drawing {
	d := drawSteps(f.of.Spec(), nil)
	for _, one := range f.Findings {
		if len(one.Trace) == 0 {
			continue
		}
		for i, st := range f.of.Spec().Steps {
			for _, at := range one.Trace {
				if name, outcome, ok := strings.Cut(at, ": "); ok && name == st.Name && outcome != "skipped" {
					d.Steps[i].Marked = true
				}
			}
		}
		break
	}
	return d
}
