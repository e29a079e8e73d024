package coordinator_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// booths is a service outside that does each idempotency key once.
type booths struct {
	mu   sync.Mutex
	done map[string]int // by operation and key
	mute bool           // its answers are lost
}

// The two commands of a booth.
type (
	Rent   struct{}
	Return struct{}
)

// ask returns the call of a command of type T.
func ask[T any](b *booths) func(context.Context, participant.Command[T]) (string, error) {
	return func(_ context.Context, c participant.Command[T]) (string, error) { return b.ask(c.Message) }
}

// saying decides with an event.
func saying[T any](event any) func(context.Context, pgx.Tx, participant.Command[T], string) (participant.Outcome, error) {
	return func(context.Context, pgx.Tx, participant.Command[T], string) (participant.Outcome, error) {
		return participant.Succeed(event), nil
	}
}

func (b *booths) ask(m envelope.Message) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[m.SagaOperation+" "+m.IdempotencyKey]++
	if b.mute {
		return "", retry.Permanent(errors.New("no answer"))
	}
	return "", nil
}

func (b *booths) effects() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.done)
}

func (b *booths) silent(is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mute = is
}

// TestARetriedCallWithoutAnAnswerHasItsKeyAgain: a call took effect, and its answer was lost, so that the command and the compensation
// became dead letters. An operator retries them.
func TestARetriedCallWithoutAnAnswerHasItsKeyAgain(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	service := &booths{done: make(map[string]int), mute: true}
	p := f.participant("booth", f.pool)
	participant.Call(p, ask[Rent](service), saying[Rent](PaymentCharged{}))
	participant.Call(p, ask[Return](service), saying[Return](PaymentRefunded{}))
	f.run(p, f.pool)
	f.c = f.coordinator(parsed(t, `{"saga":"fair","version":1,"key":"id","data":{"id":"string"},"steps":[
  {"name":"booth","command":{"hop":"booth","type":"Rent"},"success":[{"event":"PaymentCharged"}],"timeout":"1h",
   "compensation":{"command":{"hop":"booth","type":"Return"},"success":[{"event":"PaymentRefunded"}],"timeout":"1h"}},
  {"name":"permit","needs":["booth"],"success":[{"hop":"desk","event":"Permitted"}],"timeout":"1h"}]}`))
	id := f.begun("fair", map[string]any{"id": "f-1"})
	status := func(want saga.Status) {
		t.Helper()
		f.waitCount("the saga to be "+string(want), 1, "SELECT count(*) FROM troupe.sagas WHERE id = $1 AND status = $2", id, string(want))
	}
	act := func(kind saga.Kind, step string) {
		t.Helper()
		_, err := f.act(id, saga.Event{Kind: kind, Step: step})
		require.NoError(t, err)
	}
	status(saga.Parked)
	service.silent(false)
	act(saga.ActRetry, "booth")
	f.waitCount("the booth", 1, "SELECT count(*) FROM troupe.sagas WHERE id = $1 AND status = 'running' AND steps = 'permit'", id)
	require.Equal(t, 1, service.effects(), "%v", service.done)
	service.silent(true)
	act(saga.ActCompensate, "")
	status(saga.Parked)
	service.silent(false)
	act(saga.ActRetry, "booth")
	status(saga.Compensated)
	require.Equal(t, 2, service.effects(), "%v", service.done)
}
