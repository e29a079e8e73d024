package ambassador_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestACommandThatComesAgainIsOneRequest(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write([]byte(`{"id":"r-7"}`)) })
	s := stage(t, hotel.URL)
	m := call(s, "POST", "/rooms", `{}`)
	again := m // as a coordinator would send it again
	again.ID = envelope.NewID()
	s.Send(m, m, again)
	require.JSONEq(t, `{"id":"r-7"}`, string(done(s, m).Body))
	require.JSONEq(t, `{"id":"r-7"}`, string(done(s, again).Body))
	s.Settle()
	s.Replay()
	s.Settle()
	require.Equal(t, []string{m.IdempotencyKey}, hotel.keys())
	require.Len(t, s.Entries(s.Hop.Events()), 2)
}

// TestACrashAtEveryStepIsOneEffectForAServiceThatKnowsItsKeys: the service stores the keys in its own database, here the
// stage's.
func TestACrashAtEveryStepIsOneEffectForAServiceThatKnowsItsKeys(t *testing.T) {
	t.Parallel()
	var pools sync.Map // the pools of the stages, by flow
	hotel := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		pool, _ := pools.Load(r.Header.Get("X-Stage"))
		_, err := pool.(*pgxpool.Pool).Exec(r.Context(),
			"INSERT INTO rooms (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET asked = rooms.asked + 1", r.Header.Get("Idempotency-Key"))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	testkit.CrashAtEveryStep(t, testkit.StageConfig{
		SQL: "CREATE TABLE rooms (key text PRIMARY KEY, asked int NOT NULL DEFAULT 1)",
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			pools.Store(s.Hop.Flow(), s.Pool)
			a, err := ambassador.New(ambassador.Config{BaseURL: hotel.URL, Header: http.Header{"X-Stage": {s.Hop.Flow()}}})
			require.NoError(t, err)
			a.Handle(p)
		},
	}, func(s *testkit.Stage) envelope.Message {
		return call(s, "POST", "/rooms", `{}`)
	}, testkit.Query("SELECT count(*) FROM rooms"))
	require.Greater(t, len(hotel.keys()), 2, "the request was repeated, with the same key")
}

// TestOneFailureInABatchAsksForNothingElseAgain: calls are never in a batch.
func TestOneFailureInABatchAsksForNothingElseAgain(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.URL.Path == "/7" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s := stage(t, hotel.URL, attempts(2), func(_ *ambassador.Config, p *participant.Config) { p.Batch = 100 })
	var all []envelope.Message
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		m := call(s, "POST", "/"+n, `{}`)
		m.Key = []byte(n)
		all = append(all, m)
	}
	s.Send(all...)
	s.AwaitDeadLetter(all[6])
	s.Settle()
	asked := make(map[string]int)
	for _, r := range hotel.requests() {
		asked[r.URL.Path]++
	}
	require.Equal(t, map[string]int{"/1": 1, "/2": 1, "/3": 1, "/4": 1, "/5": 1, "/6": 1, "/7": 2, "/8": 1, "/9": 1}, asked)
}
