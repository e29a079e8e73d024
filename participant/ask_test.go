package participant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// oracle is the external service, which records its callers.
type oracle struct {
	mu     sync.Mutex
	asked  map[string]int // by id
	order  map[string][]int
	most   int
	asking int
	meet   chan struct{} // closed when as many calls as required are active at once
	met    sync.Once
	want   int
}

func newOracle(atOnce int) *oracle {
	return &oracle{asked: make(map[string]int), order: make(map[string][]int), meet: make(chan struct{}), want: atOnce}
}

func (o *oracle) ask(ctx context.Context, c participant.Command[[]byte]) (Count, error) {
	var body Count
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return body, err
	}
	o.mu.Lock()
	o.asked[c.Message.ID]++
	key := string(c.Message.Key)
	o.order[key] = append(o.order[key], body.N)
	if o.asking++; o.asking == o.want {
		o.met.Do(func() { close(o.meet) })
	}
	o.most = max(o.most, o.asking)
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.asking--
		o.mu.Unlock()
	}()
	if body.N == 1 && o.want > 0 {
		select {
		case <-o.meet:
		case <-ctx.Done():
			return body, ctx.Err()
		}
	}
	switch body.Fail {
	case "error":
		return body, errors.New("the oracle is moody")
	case "panic":
		panic("the oracle is mad")
	}
	return body, nil
}

func (o *oracle) take(_ context.Context, _ pgx.Tx, c participant.Command[[]byte], said Count) (participant.Outcome, error) {
	return participant.Succeed(Counted{N: said.N}), nil
}

func TestTheMessagesOfABatchAskAtOnceAndNobodyTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const keys, each, attempts, batch = 12, 3, 4, 30
	o := newOracle(2) // it answers no call before two are active
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Immediate = batch, 2, -1 })
	participant.Ask(p, "Count", o.ask, o.take)
	s.provision(1)
	var all []envelope.Message
	bad := make(map[string]bool)
	for n := range each {
		for k := range keys {
			m := s.command(fmt.Sprintf("k-%02d", k), Count{N: n + 1})
			if n == 1 && k < 2 { // one fails, one panics
				m = s.command(fmt.Sprintf("k-%02d", k), Count{N: n + 1, Fail: []string{"error", "panic"}[k]})
				bad[m.ID] = true
			}
			all = append(all, m)
		}
	}
	s.send(all...)
	s.start(p)
	s.waitCount(len(all), "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events())
	require.Equal(t, len(bad), s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = $1", attempts))
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range all {
		want := 1
		if bad[m.ID] {
			want = attempts
		}
		require.Equal(t, want, o.asked[m.ID], "%s %s", m.Key, m.Payload)
	}
	for key, ns := range o.order {
		require.IsNonDecreasing(t, ns, key)
	}
	require.LessOrEqual(t, o.most, 2*batch)
}

// TestACommandThatWouldNotRunAsksNobody checks a command that was answered under another id, and one that its saga's step
// blocks.
func TestACommandThatWouldNotRunAsksNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := newOracle(0)
	begin := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Batch = 50 })
		participant.Ask(p, "Count", o.ask, o.take)
		return s.start(p)
	}
	s.provision(1)
	first := s.command("a", Count{N: 1})
	undo := s.command("b", Count{N: 1})
	undo.SagaID, undo.SagaStep, undo.SagaOperation = "saga", "step", "compensate"
	s.send(first, undo)
	stop := begin()
	s.waitEvents(2)
	stop() // or the messages of one batch might come in two
	again, late, other := first, undo, s.command("c", Count{N: 1})
	again.ID, late.ID = envelope.NewID(), envelope.NewID()
	late.IdempotencyKey, late.SagaOperation = late.ID, "forward"
	later := again // in the same batch
	later.ID, later.Key = envelope.NewID(), []byte("d")
	twice := other
	twice.ID, twice.Key = envelope.NewID(), []byte("e")
	s.send(again, late, other, later, twice)
	begin()
	s.waitEvents(7)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Equal(t, map[string]int{first.ID: 1, undo.ID: 1, other.ID: 1}, o.asked)
}

// TestHandlersThatCallAServiceDoNotGatherBatches checks that Ask does not gather: its runs wait for another service, which may be slow.
func TestHandlersThatCallAServiceDoNotGatherBatches(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := newOracle(2)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Timeout = 30, 2, 10*time.Minute })
	p.Gather(time.Hour)
	participant.Ask(p, "Count", o.ask, o.take)
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitAll("asks", 1, func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.asking
	})
	s.send(s.command("b", Count{N: 1}))
	s.waitEvents(2)
}
