package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// A service books trips over HTTP. A request waits for the end of its saga; if that takes too long it gets 202 and a Location, where
// it asks again.
func ExampleCoordinator_Wait() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	if err := requests(ctx, pool); err != nil {
		fmt.Println(err)
	}
	// Output:
	// POST /trips/t-1: 200 completed, room 12
	// POST /trips/t-1: 200 completed, room 12
	// POST /trips/t-1: 409 trip t-1 was booked with other data
	// POST /trips/t-2: 202 ask again at /trips/t-2
	// GET /trips/t-2: 200 completed, room 12
	// GET /trips/t-3: 404 there is no trip t-3
}

// A shopfront books trips.
type shopfront struct {
	sagas *coordinator.Coordinator
	wait  time.Duration
}

func (f shopfront) book(w http.ResponseWriter, r *http.Request) {
	trip := r.PathValue("trip")
	nights, err := strconv.Atoi(r.FormValue("nights"))
	if err != nil {
		http.Error(w, "nights: "+err.Error(), http.StatusBadRequest)
		return
	}
	is, err := f.sagas.Submit(r.Context(), "trip", map[string]any{"trip": trip, "nights": nights}, nil)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case is.OtherData:
		http.Error(w, "trip "+trip+" was booked with other data", http.StatusConflict)
	default: // a request that comes again is answered as the first one
		f.show(w, r)
	}
}

func (f shopfront) show(w http.ResponseWriter, r *http.Request) {
	trip := r.PathValue("trip")
	ctx, stop := context.WithTimeout(r.Context(), f.wait)
	defer stop()
	s, err := f.sagas.Wait(ctx, "trip", trip)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Location", "/trips/"+trip)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, "ask again at /trips/%s", trip)
	case errors.Is(err, coordinator.ErrNotFound):
		http.Error(w, "there is no trip "+trip, http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		fmt.Fprintf(w, "%s, room %v", s.Status, s.Data["room"])
	}
}

func requests(ctx context.Context, pool *pgxpool.Pool) error {
	trip, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip",
		Data: map[string]saga.Type{"trip": saga.String, "nights": saga.Int, "room": saga.Int},
		Steps: []saga.Step{{
			Name:    "hotel",
			Command: &saga.Command{Hop: "hotel", Type: "BookRoom", Input: saga.Mapping{"nights": "data.nights"}},
			Success: []saga.Answer{{Event: "RoomBooked", Set: saga.Mapping{"room": "event.room"}}},
			Failure: []saga.Answer{{Event: "RoomRefused"}},
			Timeout: saga.Duration(time.Hour),
		}},
	})
	if err != nil {
		return err
	}
	office, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("travel", "office"), Local: true, Concurrency: 1})
	if err != nil {
		return err
	}
	hotel, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("travel", "hotel"), Local: true, Concurrency: 1})
	if err != nil {
		return err
	}
	longStays := make(chan struct{}) // closed when the hotel answers requests of more than a week
	participant.Handle(hotel, func(ctx context.Context, _ pgx.Tx, c participant.Command[BookRoom]) (participant.Outcome, error) {
		if c.Body.Nights > 7 {
			select {
			case <-longStays:
			case <-ctx.Done():
				return participant.Outcome{}, ctx.Err()
			}
		}
		return participant.Succeed(RoomBooked{Room: 12}), nil
	})
	c, err := coordinator.New(ctx, coordinator.Config{Participant: office, Pool: pool, Definitions: []*saga.Definition{trip}})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	running, stop := context.WithCancel(ctx)
	defer func() { stop(); <-ended; <-ended }()
	for _, p := range []*participant.Participant{office, hotel} {
		go func() { ended <- p.Run(running) }()
	}

	patient, hasty := shopfront{c, 4 * time.Minute}, shopfront{c, 100 * time.Millisecond}
	ask := func(f shopfront, method, path, body string) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /trips/{trip}", f.book)
		mux.HandleFunc("GET /trips/{trip}", f.show)
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		text, _ := io.ReadAll(w.Result().Body)
		fmt.Printf("%s %s: %d %s\n", method, path, w.Code, strings.TrimSpace(string(text)))
	}
	ask(patient, http.MethodPost, "/trips/t-1", "nights=2")
	ask(patient, http.MethodPost, "/trips/t-1", "nights=2")
	ask(patient, http.MethodPost, "/trips/t-1", "nights=3")
	ask(hasty, http.MethodPost, "/trips/t-2", "nights=9")
	close(longStays)
	ask(patient, http.MethodGet, "/trips/t-2", "")
	ask(patient, http.MethodGet, "/trips/t-3", "")
	return nil
}
