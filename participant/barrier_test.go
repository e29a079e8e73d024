package participant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// Undo compensates a Count. Its effect is a row in done with a negative number.
type Undo struct {
	N    int    `json:"n"`
	Fail string `json:"fail,omitempty"`
}

func undo(ctx context.Context, tx pgx.Tx, c participant.Command[Undo]) (participant.Outcome, error) {
	_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", string(c.Message.Key), -c.Body.N, c.Attempt)
	if c.Body.Fail == "refuse" {
		return participant.Refuse(TooMany{Limit: 1}), err
	}
	return participant.Succeed(Undone{N: c.Body.N}), err
}

// Undone is the answer to Undo.
type Undone struct {
	N int `json:"n"`
}

// call is one command of a saga's step, with the expected result.
type call struct {
	saga, step, operation string
	key                   string // idempotency
	doubt                 bool
	n                     int
	fail                  string

	want string // the answer's outcome and type
	runs bool
}

// message returns c as a saga would send it.
func (c call) message(s *stage, key string) envelope.Message {
	m := s.command(key, Count{N: c.n, Fail: c.fail})
	if c.operation == "" {
		m.Payload = marshal(Count{}) // no saga identifies the request: the same body for the same key
	}
	if c.operation == "compensate" {
		m.Type, m.Payload = "Undo", marshal(Undo{N: c.n, Fail: c.fail})
	}
	m.SagaID, m.SagaStep, m.SagaOperation, m.IdempotencyKey = c.saga, c.step, c.operation, c.key
	if c.doubt {
		m.Extra = []envelope.Header{{Key: participant.HeaderDoubt, Value: []byte("true")}}
	}
	return m
}

// give sends messages, or writes them if work is local.
func (s *stage) give(ms ...envelope.Message) {
	s.t.Helper()
	if !s.local {
		s.send(ms...)
		return
	}
	out, err := outbox.New(outbox.Config{})
	require.NoError(s.t, err)
	require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		for _, m := range ms {
			err := out.Write(s.t.Context(), tx, outbox.Entry{
				Topic: m.Topic, Key: string(m.Key), Payload: m.Payload, Type: m.Type, ContentType: m.ContentType, ID: m.ID,
				Outcome: m.Outcome, IdempotencyKey: m.IdempotencyKey,
				SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation, Headers: m.Extra,
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// bothWays runs a test on Kafka and on local work, with messages one by one and all in one transaction.
func bothWays(t *testing.T, test func(t *testing.T, s *stage)) {
	for _, local := range []bool{false, true} {
		for _, batch := range []int{1, 100} {
			t.Run(fmt.Sprintf("local %t, %d at once", local, batch), func(t *testing.T) {
				t.Parallel()
				s := newStage
				if local {
					s = newLocalStage
				}
				stage := s(t)
				if stage.batch = batch; local {
					stage.makeLocal()
				} else {
					stage.provision(1)
				}
				test(t, stage)
			})
		}
	}
}

// batched configures one partition, and as many messages in a transaction as the test sets.
func (s *stage) batched(c *participant.Config) { c.Partitions, c.Batch = 1, s.batch }

// TestTheBarrierOfAStep checks that the effects of a step's two calls decide about later ones, whatever
// their ids and keys are.
func TestTheBarrierOfAStep(t *testing.T) {
	t.Parallel()
	const (
		counted = "success Counted"
		undone  = "success Undone"
		refused = "failure TooMany"
		late    = "failure troupe.Nothing"
		idle    = "success troupe.Nothing"
		forward = "forward"
		back    = "compensate"
	)
	stories := map[string][]call{
		"a duplicate under another key": {
			{operation: forward, key: "f:1", want: counted, runs: true}, {operation: forward, key: "f:2", want: counted},
			{operation: back, key: "c:1", want: undone, runs: true}, {operation: back, key: "c:2", want: undone},
			{operation: forward, key: "f:3", want: counted},
		},
		"forward and compensation under one key": {
			{operation: forward, key: "same", want: counted, runs: true}, {operation: back, key: "same", want: undone, runs: true},
			{operation: forward, key: "same", want: counted}, {operation: back, key: "same", want: undone},
		},
		"a refusal is repeated until the command is sent again": {
			{operation: forward, key: "f:1", fail: "refuse", want: refused, runs: true}, {operation: forward, key: "f:1", want: refused},
			{operation: forward, key: "f:2", want: counted, runs: true}, {operation: forward, key: "f:1", want: counted},
			{operation: back, key: "c:1", doubt: true, want: undone, runs: true},
		},
		"in doubt, and no forward call": {
			{operation: back, key: "c:1", doubt: true, want: idle}, {operation: forward, key: "f:1", want: late},
			{operation: forward, key: "f:2", want: late}, {operation: back, key: "c:2", want: idle},
			{operation: forward, want: late},
		},
		"known to be needed, and no forward call": {
			{operation: back, key: "c:1", want: undone, runs: true}, {operation: forward, key: "f:1", want: late},
			{operation: forward, key: "f:1", want: late}, {operation: back, key: "c:2", doubt: true, want: undone},
		},
		"in doubt, and refused": {
			{operation: forward, key: "f:1", fail: "refuse", want: refused, runs: true}, {operation: back, key: "c:1", doubt: true, want: idle},
			{operation: forward, key: "f:1", want: refused}, {operation: forward, key: "f:2", want: late},
		},
		"a compensation is refused": {
			{operation: back, key: "c:1", fail: "refuse", want: refused, runs: true}, {operation: back, key: "c:1", want: refused},
			{operation: forward, key: "f:1", want: late}, {operation: back, key: "c:2", want: undone, runs: true},
		},
		"another step is another": {
			{operation: forward, key: "f:1", want: counted, runs: true}, {step: "reserve", operation: forward, key: "f:1", want: counted, runs: true},
			{step: "reserve", operation: back, key: "c:1", doubt: true, want: undone, runs: true},
			{operation: back, key: "c:1", doubt: true, want: undone, runs: true},
		},
		"without an operation it is a command like any other": {
			{key: "x:1", want: counted, runs: true}, {key: "x:2", want: counted, runs: true}, {key: "x:1", want: counted},
			{operation: "sideways", key: "x:3", want: counted, runs: true}, {operation: back, key: "c:1", doubt: true, want: idle},
		},
	}
	bothWays(t, func(t *testing.T, s *stage) {
		var all []envelope.Message
		calls := make(map[string]call)
		runs := make(map[string]int)
		for saga, story := range stories {
			for n, c := range story {
				if c.saga, c.n = saga, n+1; c.step == "" {
					c.step = "charge"
				}
				if c.key != "" && c.operation != forward && c.operation != back {
					c.key += saga
				}
				m := c.message(s, saga)
				calls[m.ID] = c
				all = append(all, m)
				if c.runs {
					runs[saga]++
				}
			}
		}
		s.give(all...)
		p := s.new(s.batched)
		participant.Handle(p, count)
		participant.Handle(p, undo)
		s.start(p)
		first := make(map[string]string) // the answer to the first run of a saga's step
		for _, e := range s.waitEvents(len(all)) {
			c := calls[e.CausationID]
			what := fmt.Sprintf("%s: call %d", c.saga, c.n)
			require.Equal(t, c.want, string(e.Outcome)+" "+e.Type, what)
			require.Equal(t, []string{c.saga, c.step, c.operation, c.key}, []string{e.SagaID, e.SagaStep, e.SagaOperation, e.IdempotencyKey}, what)
			at := c.saga + c.step + c.operation + string(e.Outcome) + e.Type
			if c.operation != forward && c.operation != back {
				at += c.key
			}
			if c.runs || first[at] == "" {
				first[at] = string(e.Payload)
			}
			require.Equal(t, first[at], string(e.Payload), what)
			if e.Type == "troupe.Nothing" {
				require.Regexp(t, `^{"reason":"[a-z ,]+"}$`, string(e.Payload))
				require.Equal(t, envelope.JSON, e.ContentType)
			}
		}
		for saga := range stories {
			require.Equal(t, runs[saga], s.count("SELECT count(*) FROM done WHERE key = $1", saga), saga)
		}
		if s.batch > 1 {
			const together = "SELECT count(DISTINCT (key, xid)) FROM troupe.outbox WHERE topic = $1"
			require.Equal(t, len(stories), s.count(together, s.hop.Events()), "each saga's calls are one transaction")
		}
	})
}

// TestTheCallsOfAStepMeet checks that, in two concurrent transactions on two partitions, the unique key decides:
// the second one runs again and sees the first one's answer.
func TestTheCallsOfAStepMeet(t *testing.T) {
	t.Parallel()
	refusal := call{operation: "forward", key: "f:1", fail: "refuse"}
	for name, c := range map[string]struct {
		before          []call
		sure            bool   // the compensation is sent without doubt
		second          string // which of the two commits second
		forward, undone string
		done            []int
	}{
		"the forward call is second":          {nil, false, "forward", "failure troupe.Nothing", "success troupe.Nothing", nil},
		"the compensation is second":          {nil, false, "compensate", "success Counted", "success Undone", []int{2, -3}},
		"asked again, the forward is second":  {[]call{refusal}, false, "forward", "failure troupe.Nothing", "success troupe.Nothing", []int{1}},
		"asked again, the compensation is it": {[]call{refusal}, false, "compensate", "success Counted", "success Undone", []int{1, 2, -3}},

		"without doubt, the forward call is second":              {nil, true, "forward", "failure troupe.Nothing", "success Undone", []int{-3}},
		"without doubt, the compensation is second":              {nil, true, "compensate", "success Counted", "success Undone", []int{2, -3}},
		"without doubt, asked again, the forward call is second": {[]call{refusal}, true, "forward", "failure troupe.Nothing", "success Undone", []int{1, -3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(2)
			keys := s.keys(2)
			waits, goes := make(chan struct{}), make(chan struct{})
			var once sync.Once
			var mu sync.Mutex
			tries := make(map[string]int)
			p := s.new(func(cfg *participant.Config) {
				cfg.Timeout = 10 * time.Minute // or Postgres ends the transaction that waits
				cfg.Hooks.BeforeCommit = func(d participant.Delivery) {
					if d.Message.IdempotencyKey == "f:1" {
						return
					}
					mu.Lock()
					tries[d.Message.SagaOperation]++
					mu.Unlock()
					if d.Message.SagaOperation == c.second {
						once.Do(func() { close(waits) })
						<-goes
					}
				}
			})
			participant.Handle(p, count)
			participant.Handle(p, undo)
			s.start(p)
			send := func(key string, calls ...call) {
				for _, c := range calls {
					c.saga, c.step = "s-1", "charge"
					s.send(c.message(s, key))
				}
			}
			send(keys[0], c.before...)
			s.waitEvents(len(c.before))
			both := map[string]func(){
				"forward":    func() { send(keys[0], call{operation: "forward", key: "f:2", n: 2}) },
				"compensate": func() { send(keys[1], call{operation: "compensate", key: "c:1", n: 3, doubt: !c.sure}) },
			}
			both[c.second]()
			<-waits
			delete(both, c.second)
			for _, first := range both {
				first()
			}
			s.waitEvents(len(c.before) + 1)
			close(goes)
			got := make(map[string]string)
			for _, e := range s.waitEvents(len(c.before) + 2) {
				got[e.SagaOperation] = string(e.Outcome) + " " + e.Type
			}
			require.Equal(t, map[string]string{"forward": c.forward, "compensate": c.undone}, got)
			rows, err := s.pool.Query(t.Context(), "SELECT n FROM done ORDER BY position")
			require.NoError(t, err)
			done, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(t, err)
			for i, n := range done {
				if n == 0 {
					done[i] = 1 // the row of the refusal
				}
			}
			require.Equal(t, c.done, nilIfEmpty(done))
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 2, tries[c.second], "it ran into the other's row")
		})
	}
}

func nilIfEmpty(ns []int) []int {
	if len(ns) == 0 {
		return nil
	}
	return ns
}

// TestNothingIsAnEventLikeExhausted checks that an orchestrator receives it by type, whatever codec the flow has.
func TestNothingIsAnEventLikeExhausted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	saga := topics.MustHop(s.hop.Flow(), "order")
	got := make(chan participant.Event[participant.Nothing], 1)
	p := s.new(func(c *participant.Config) { c.Hop, c.Codec = saga, noCodec{} })
	participant.On(p, s.hop, func(_ context.Context, _ pgx.Tx, e participant.Event[participant.Nothing]) error {
		got <- e
		return nil
	})
	s.start(p)
	m := s.command("a", Count{})
	m.Topic, m.Type, m.Outcome, m.Payload = s.hop.Events(), "troupe.Nothing", envelope.Failure, []byte(`{"reason":"late"}`)
	s.send(m)
	e := <-got
	require.Equal(t, participant.Nothing{Reason: "late"}, e.Body)
	require.Equal(t, envelope.Failure, e.Message.Outcome)
}

// noCodec knows no type.
type noCodec struct{}

func (noCodec) Encode(string, any) (envelope.Encoded, error) { return envelope.Encoded{}, errAsked }
func (noCodec) TypeOf(any) (string, error)                   { return "", errAsked }
func (noCodec) Decode(envelope.Message, any) error           { return errAsked }

// TestARefusalAndItsCompensationFitInOneBatch checks that the compensation stores the refusal again, which this transaction has
// not written yet, and that no handler runs twice for it.
func TestARefusalAndItsCompensationFitInOneBatch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var runs atomic.Int32
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch, c.Concurrency = 100, 1
		c.Hooks.BeforeHandler = func(participant.Delivery) { runs.Add(1) }
	})
	participant.Handle(p, count)
	participant.Handle(p, undo)
	s.provision(1)
	refused := call{saga: "order/o-1", step: "charge", operation: "forward", key: "f:1", n: 1, fail: "refuse"}
	doubted := call{saga: "order/o-1", step: "charge", operation: "compensate", key: "c:1", n: 2, doubt: true}
	s.send(refused.message(s, "o-1"), doubted.message(s, "o-2")) // of one key they would not be written together
	s.start(p)
	events := s.waitEvents(2)
	require.Equal(t, []string{"TooMany", "troupe.Nothing"}, []string{events[0].Type, events[1].Type})
	require.EqualValues(t, 1, runs.Load(), "the forward call once, the compensation not at all")
}
