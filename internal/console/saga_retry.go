package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
)

// retryFacts are the preview of a retry of all parked sagas of a type: the lines of troupe saga retry --saga --dry-run, counted.
type retryFacts struct {
	Database string `json:"database"`
	Saga     string `json:"saga"`   // the type
	Parked   int    `json:"parked"` // all of them
	sagaSample
}

func (f retryFacts) title() string { return "Retry all parked sagas of " + f.Saga }

// parkedType returns the database and the type of a retry, and how many sagas of the type are parked.
func (a *ask) parkedType(ctx context.Context) (s *source, name string, parked int, err error) {
	if s, err = a.database(); err != nil {
		return nil, "", 0, err
	}
	if name = a.get("saga"); name == "" {
		return nil, "", 0, refuse(http.StatusBadRequest, "saga: want a type of sagas, such as order")
	}
	parked, err = s.sagas.CountParked(ctx, name)
	return s, name, parked, err
}

// readRetry reads the preview.
func readRetry(ctx context.Context, a *ask) (any, error) {
	s, name, parked, err := a.parkedType(ctx)
	if err != nil {
		return nil, err
	}
	f := retryFacts{Database: s.Name, Saga: name, Parked: parked}
	f.sagaSample, err = sampleSagas(func(add func(id, can, obstacle string) error) error {
		return s.sagas.PlanRetry(ctx, name, func(one sagadesk.RetriedSaga) error {
			return add(one.ID, strings.Join(one.Steps, ", "), one.Obstacle)
		})
	})
	return f, err
}

var retryWork = &workKind{Name: "Retry of sagas", List: "/sagas", Title: "Sagas", Object: "Saga", Page: "/saga", Refused: "Stay as they are"}

// actOnRetry begins a Work that retries the sagas.
func actOnRetry(ctx context.Context, a *ask) (any, string, error) {
	if err := a.by.CheckReasoned(); err != nil {
		return nil, "", err
	}
	rate, err := a.rate()
	if err != nil {
		return nil, "", err
	}
	s, name, parked, err := a.parkedType(ctx)
	if err != nil {
		return nil, "", err
	}
	if parked == 0 {
		return nil, "", refuse(http.StatusConflict, "no saga of type %s is parked: there is nothing to do", name)
	}
	if err := a.counted(func() (int, error) { return parked, nil }); err != nil {
		return nil, "", err
	}
	one := &Work{kind: retryWork, Database: s.Name, Chosen: url.Values{"saga": {name}}.Encode(), Total: parked}
	r := sagadesk.ParkedRetry{Saga: name, Actor: a.by.Name, Reason: a.by.Reason, Rate: rate}
	return a.begin(one, func(ctx context.Context, tell func(func(*Work))) error {
		return s.sagas.RetryParked(ctx, r, func(did sagadesk.RetriedSaga) error {
			tell(func(w *Work) { w.tried(did.ID, did.Obstacle) })
			return nil
		})
	})
}
