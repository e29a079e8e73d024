package participant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// coordinator returns the hop that consumes the events of the stage's hop.
func (s *stage) coordinator() topics.Hop { return topics.MustHop(s.hop.Flow(), "order") }

func (s *stage) coordinates(c *participant.Config) {
	c.Hop = s.coordinator()
	c.Partitions, c.Batch = 1, s.batch
}

// event returns an event of the stage's hop.
func (s *stage) event(key string, body Count) envelope.Message {
	m := s.command(key, body)
	m.Topic, m.Outcome = s.hop.Events(), envelope.Success
	return m
}

// listen makes the events topic local for the coordinator before the coordinator does.
func (s *stage) listen() {
	s.t.Helper()
	if s.local {
		_, err := s.pool.Exec(s.t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Events(), s.coordinator().String())
		require.NoError(s.t, err)
	}
}

// taken records the calls of a handler of whole batches.
type taken struct {
	mu    sync.Mutex
	calls [][]participant.Taken
	ids   map[string][]string // ids of the entries written for a message, by its id
}

func (k *taken) alone(key string) (attempts []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ms := range k.calls {
		if len(ms) == 1 && string(ms[0].Message.Key) == key {
			attempts = append(attempts, ms[0].Attempt)
		}
	}
	return attempts
}

// handle writes two entries and one row for each message, all in a few statements; then it fails if a message says so.
func (k *taken) handle(p *participant.Participant, next string) func(context.Context, pgx.Tx, []participant.Taken) error {
	return func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
		k.mu.Lock()
		k.calls = append(k.calls, ms)
		k.mu.Unlock()
		var keys []string
		var ns, attempts []int
		var failure error
		for i, m := range ms {
			var body Count
			if err := json.Unmarshal(m.Message.Payload, &body); err != nil {
				return participant.At(i, err)
			}
			if body.Fail != "" && failure == nil {
				failure = participant.At(i, errAsked)
			}
			keys, ns, attempts = append(keys, string(m.Message.Key)), append(ns, body.N), append(attempts, m.Attempt)
			for range 2 {
				if err := p.Outbox().Write(m.Context(), tx, entry(next, Counted{N: body.N})); err != nil {
					return err
				}
			}
		}
		const insert = "INSERT INTO done (key, n, attempt) SELECT * FROM unnest($1::text[], $2::int[], $3::int[])"
		if _, err := tx.Exec(ctx, insert, keys, ns, attempts); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT headers->>'ce_causationid', id::text FROM troupe.outbox WHERE topic = $1 ORDER BY position", next)
		if err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		var cause, id string
		if _, err := pgx.ForEachRow(rows, []any{&cause, &id}, func() error {
			k.ids[cause] = append(k.ids[cause], id)
			return nil
		}); err != nil {
			return err
		}
		return failure
	}
}

// TestABatchIsHandedOverAtOnce checks that a transaction has one call, in the order of each key; the message that an error
// names is tried alone, the others take effect once, and written entries have the same ids in each run.
func TestABatchIsHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		const keys, each, attempts = 40, 2, 4
		s.listen()
		k := &taken{ids: make(map[string][]string)}
		transactions := 0
		var mu sync.Mutex
		p := s.new(s.coordinates, func(c *participant.Config) {
			c.Hooks.Transaction = func(ctx context.Context, ds []participant.Delivery) (context.Context, func(error)) {
				mu.Lock()
				defer mu.Unlock()
				transactions++
				return ctx, nil
			}
		})
		next := topics.MustHop(s.hop.Flow(), "shipping").Commands()
		participant.OnAll(p, []topics.Hop{s.hop}, k.handle(p, next))
		var all []envelope.Message
		byID := make(map[string]envelope.Message)
		for n := range each {
			for key := range keys {
				m := s.event(fmt.Sprintf("k-%02d", key), Count{N: n + 1})
				if key == keys/2 && n == 0 {
					m = s.event("k-bad", Count{N: n + 1, Fail: "error"})
				} else if key == keys/2 {
					m.Key = []byte("k-bad")
				}
				m.CorrelationID = m.ID
				byID[m.ID] = m
				all = append(all, m)
			}
		}
		s.give(all...)
		s.start(p)
		s.waitCount(keys*each-1, "SELECT count(*) FROM done")
		s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = $1 AND error = 'as asked' AND handler = $2", attempts, s.coordinator().String()+"/all")
		require.Equal(t, keys*each-1, s.count("SELECT count(DISTINCT (key, n)) FROM done"), "each once")
		require.Zero(t, s.count(`
			SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d WHERE n < before`))
		written := s.entries(next)
		require.Len(t, written, 2*(keys*each-1))
		for _, e := range written {
			require.Equal(t, byID[e.CausationID].CorrelationID, e.CorrelationID)
		}
		failed := k.alone("k-bad")
		if s.batch > 1 {
			require.Equal(t, []int{1, 2, 3, 4}, failed[:attempts], "the named one alone, with its attempts")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		require.Len(t, k.ids, keys*each)
		for cause, ids := range k.ids {
			distinct := make(map[string]bool)
			for _, id := range ids {
				distinct[id] = true
			}
			require.Len(t, distinct, 2, "the same in each run of %s", byID[cause].Key)
		}
		largest, rest := 0, 0
		for _, ms := range k.calls {
			largest = max(largest, len(ms))
			if len(ms) == 1 && string(ms[0].Message.Key) != "k-bad" {
				rest++
			}
		}
		if s.batch > 1 && !s.local {
			require.Equal(t, keys*each, largest, "all at once")
			require.Zero(t, rest, "no other message ran alone")
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, k.calls, transactions, "one call for each transaction")
	})
}

// TestAnErrorThatNamesNobodyLetsEachRunAlone checks errors, panics and time-outs. Runs in a batch count as no attempts.
func TestAnErrorThatNamesNobodyLetsEachRunAlone(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context) error{
		"error":                    func(context.Context) error { return errAsked },
		"a message that is not in": func(context.Context) error { return participant.At(7, errAsked) },
		"panic":                    func(context.Context) error { panic("as asked") },
		"time-out":                 func(ctx context.Context) error { <-ctx.Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.batch = 100
			s.provision(1)
			for n := range 5 {
				s.give(s.event(fmt.Sprintf("k-%d", n), Count{N: n}))
			}
			p := s.new(s.coordinates, func(c *participant.Config) {
				if name == "time-out" {
					c.Timeout = time.Second
				}
			})
			k := &taken{ids: make(map[string][]string)}
			handle := k.handle(p, "elsewhere")
			var mu sync.Mutex
			largest, first := 0, make(map[string]int) // the attempt of each one's first run alone
			participant.OnAll(p, []topics.Hop{s.hop}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
				mu.Lock()
				if largest = max(largest, len(ms)); len(ms) == 1 && first[string(ms[0].Message.Key)] == 0 {
					first[string(ms[0].Message.Key)] = ms[0].Attempt
				}
				mu.Unlock()
				if len(ms) > 1 {
					return fail(ctx)
				}
				return handle(ctx, tx, ms)
			})
			s.start(p)
			s.waitCount(5, "SELECT count(*) FROM done")
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 5, largest)
			require.Equal(t, map[string]int{"k-0": 1, "k-1": 1, "k-2": 1, "k-3": 1, "k-4": 1}, first)
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestEverythingOfATopicIsTaken checks that events of any type are passed, Troupe's own too. The context is the message's own.
func TestEverythingOfATopicIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 10
	s.provision(1)
	type key struct{}
	var mu sync.Mutex
	ended := make(map[string]participant.Class)
	p := s.new(s.coordinates, func(c *participant.Config) {
		c.Codec = noCodec{}
		c.Retry.Attempts, c.Immediate = 1, -1
		c.Hooks.Handler = func(ctx context.Context, d participant.Delivery) (context.Context, func(participant.Delivery)) {
			return context.WithValue(ctx, key{}, d.Message.Type), func(d participant.Delivery) {
				mu.Lock()
				defer mu.Unlock()
				if d.Batch > 1 && d.Class != "" {
					ended[d.Message.Type] = d.Class
				}
			}
		}
	})
	got := make(chan string, 10)
	participant.OnAll(p, []topics.Hop{s.hop, s.coordinator()}, func(ctx context.Context, _ pgx.Tx, ms []participant.Taken) error {
		for i, m := range ms {
			require.Nil(t, envelope.CauseOf(ctx))
			require.Equal(t, m.Message.ID, envelope.CauseOf(m.Context()).Message.ID)
			require.Equal(t, m.Message.Type, m.Context().Value(key{}))
			if m.Message.Type == "Unheard" && len(ms) > 1 {
				return participant.At(i, errAsked)
			}
		}
		for _, m := range ms {
			got <- m.Message.Type
		}
		return nil
	})
	var all []envelope.Message
	for i, typ := range []string{"Counted", "troupe.Exhausted", "Unheard", "troupe.Nothing", ""} {
		m := s.event(fmt.Sprintf("k-%d", i), Count{})
		m.Type = typ
		all = append(all, m)
	}
	s.send(all...)
	s.start(p)
	var types []string
	for range all {
		types = append(types, <-got)
	}
	require.ElementsMatch(t, []string{"Counted", "troupe.Exhausted", "Unheard", "troupe.Nothing", ""}, types)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, participant.Transient, ended["Unheard"])
	require.Empty(t, ended["Counted"], "the error was another's")
}

// TestEventsCommandsAndDeadlinesOfAKeyKeepTheirOrder checks local work, which has all of them in one transaction.
func TestEventsCommandsAndDeadlinesOfAKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.batch = 100
	s.listen()
	_, err := s.pool.Exec(t.Context(), "SELECT troupe.make_local($1, $2)", s.coordinator().Commands(), s.coordinator().String())
	require.NoError(t, err)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var all []envelope.Message
	for n := range 9 {
		for _, key := range keys {
			m := s.event(key, Count{N: n + 1})
			if n%3 == 1 {
				m.Topic, m.Outcome = s.coordinator().Commands(), envelope.None
			}
			all = append(all, m)
		}
	}
	s.give(all...)
	p := s.new(s.coordinates)
	k := &taken{ids: make(map[string][]string)}
	participant.OnAll(p, []topics.Hop{s.hop}, k.handle(p, s.coordinator().Events()))
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(9*len(keys), "SELECT count(*) FROM done")
	for _, key := range keys {
		rows, err := s.pool.Query(t.Context(), "SELECT n FROM done WHERE key = $1 ORDER BY position", key)
		require.NoError(t, err)
		ns, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ns, key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	together := 0
	for _, ms := range k.calls {
		together = max(together, len(ms))
	}
	require.Greater(t, together, 2, "of several keys in one call")
}

// TestAWedgedBatchIsReported checks that it is reported as any other handler that ignores its time-out.
func TestAWedgedBatchIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 10
	s.provision(1)
	runs, may := make(chan int, 10), make(chan struct{})
	p := s.new(s.coordinates, func(c *participant.Config) { c.Timeout, c.Drain = 50*time.Millisecond, -1 })
	participant.OnAll(p, []topics.Hop{s.hop}, func(_ context.Context, _ pgx.Tx, ms []participant.Taken) error {
		runs <- len(ms)
		<-may
		return nil
	})
	s.send(s.event("a", Count{}), s.event("b", Count{}))
	stop, ended := s.run(p)
	require.Equal(t, 2, <-runs)
	s.waitWedged(p)
	stop()
	require.ErrorContains(t, <-ended, "still run")
	close(may)
	testkit.Wait(t, "its connection given back", func() (bool, error) { return s.pool.Stat().AcquiredConns() == 0, nil })
	require.Empty(t, runs)
}

// TestADeadlineNeedsNoCodec checks that a body that names its type is sent as JSON, raw parts too.
func TestADeadlineNeedsNoCodec(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	got := make(chan participant.Due[timer], 1)
	participant.OnDeadline(p, "step", func(_ context.Context, _ pgx.Tx, d participant.Due[timer]) error {
		got <- d
		return nil
	})
	body := timer{Saga: "s-1", Data: json.RawMessage(`{"any":["thing",1]}`)}
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return p.Schedule(t.Context(), tx, participant.Deadline{Name: "step", Key: "s-1", Body: body})
	}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands())
	s.publish(s.hop.Commands(), 1)
	d := <-got
	require.Equal(t, body, d.Body)
	require.Equal(t, "s-1", d.Scope)
}

type timer struct {
	Saga string          `json:"saga"`
	Data json.RawMessage `json:"data"`
}

func (timer) MessageType() string { return "troupe.timer" }
