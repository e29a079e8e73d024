package flow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// waiter is a service that expects Shipped after Paid, joins Paid with Reserved, and has a deadline of its own. Its reaction to
// Notify blocks until release is closed, so that the messages behind it wait.
type waiter struct {
	*world
	client  *kgo.Client
	blocked atomic.Int64 // the runs of the reaction
	release chan struct{}
	own     atomic.Int64 // the runs for its own deadline
}

type reminder struct{ Text string }

func newWaiter(t testing.TB) *waiter {
	w := &waiter{world: newWorld(t), release: make(chan struct{})}
	w.pools["watch"] = testkit.Database(t)
	var err error
	w.client, err = kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	testkit.Topics(t, w.client, 2, w.flow+".payment.events", w.flow+".inventory.events", w.flow+".shipping.events", w.flow+".watch.commands")
	w.relay("watch")
	return w
}

// start runs a member of the service until the returned function is called.
func (w *waiter) start() (stop func()) {
	w.t.Helper()
	p, err := participant.New(participant.Config{
		Pool: w.pools["watch"], Brokers: testkit.Kafka(w.t), Hop: w.hop("watch"), Partitions: 2, Retry: quick, Log: testkit.Logger(w.t), Kafka: session(),
	})
	require.NoError(w.t, err)
	timedOut := []flow.Message{events(w.flow, "watch", "TimedOut")}
	s := bind(w.t, p, flow.Declaration{
		Hop:       w.flow + ".watch",
		Reactions: []flow.Reaction{{On: events(w.flow, "shipping", "Notify")}, {On: events(w.flow, "inventory", "Notify")}},
		Expectations: []flow.Expectation{{
			Name: "shipped", After: events(w.flow, "payment", "Paid"), Within: "1h", Raise: timedOut[0],
			Expect: []flow.Message{events(w.flow, "shipping", "Shipped")},
		}},
		Joins: []flow.Join{{
			Name: "ready", Await: []flow.Message{events(w.flow, "payment", "Paid"), events(w.flow, "inventory", "Reserved")},
			Within: "1h", Expired: timedOut,
		}},
	})
	for _, hop := range []string{"shipping", "inventory"} {
		flow.On(s, w.hop(hop), func(ctx context.Context, _ pgx.Tx, _ participant.Event[Notify]) (participant.Outcome, error) {
			w.blocked.Add(1)
			select {
			case <-w.release:
				return participant.Done(), nil
			case <-ctx.Done():
				return participant.Outcome{}, ctx.Err()
			}
		})
	}
	flow.OnMissed(s, "shipped", func(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
		return participant.Refuse(TimedOut{}), nil
	})
	flow.OnJoin(s, "ready", flow.Ends{
		Complete: func(context.Context, pgx.Tx, flow.Joined) (participant.Outcome, error) {
			return participant.Done(), nil
		},
		Expired: func(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
			return participant.Refuse(TimedOut{Missing: j.Missing}), nil
		},
	})
	participant.OnDeadline(p, "own", func(_ context.Context, _ pgx.Tx, _ participant.Due[reminder]) error {
		w.own.Add(1)
		return nil
	})
	schedule := func(tx pgx.Tx) error {
		return p.Schedule(w.t.Context(), tx, participant.Deadline{Name: "own", Scope: "own", Key: "own", Body: reminder{}, After: time.Hour, Keep: true})
	}
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pools["watch"], schedule))
	return run(w.t, p)
}

// send publishes an event of a hop.
func (w *waiter) send(hop, key string, body any) {
	w.t.Helper()
	encoded, err := envelope.JSONCodec{}.Encode(w.hop(hop).Events(), body)
	require.NoError(w.t, err)
	require.NoError(w.t, w.client.ProduceSync(w.t.Context(), kafka.Record(envelope.Message{
		Topic: w.hop(hop).Events(), Key: []byte(key), ID: envelope.NewID(), Type: encoded.Type, Source: hop, Outcome: envelope.Success,
		ContentType: encoded.ContentType, Payload: encoded.Payload,
	})).FirstErr())
}

func (w *waiter) wait(what string, want int, sql string) {
	w.t.Helper()
	testkit.Wait(w.t, what, func() (bool, error) { return w.count("watch", sql) == want, nil })
}

// open lets the expectations and joins of o-1 and o-2 begin.
func (w *waiter) open() {
	w.t.Helper()
	w.send("payment", "o-1", Paid{})
	w.send("payment", "o-2", Paid{})
	w.wait("two expectations and two joins", 4, "SELECT count(*) FROM troupe.deadlines WHERE name <> 'own'")
}

const allAreDue = "UPDATE troupe.deadlines SET due_at = clock_timestamp() - CASE name WHEN 'own' THEN interval '1 minute' ELSE interval '30 minutes' END"

// comeInTime publishes the messages that o-1 waits for, behind others.
func (w *waiter) comeInTime() {
	w.t.Helper()
	w.send("shipping", "o-1", Notify{})
	w.send("shipping", "o-1", Shipped{})
	w.send("inventory", "o-1", Notify{})
	w.send("inventory", "o-1", Reserved{})
}

// judge checks that the messages of o-1 count, though they are handled late, and that the messages of o-2 are missed.
func (w *waiter) judge() {
	w.t.Helper()
	testkit.Wait(w.t, "two messages to block the others, and the service's own deadline", func() (bool, error) {
		return w.blocked.Load() >= 2 && w.own.Load() == 1, nil
	})
	require.Equal(w.t, 4, w.count("watch", "SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NULL"), "deadlines that wait for the backlog")
	close(w.release)
	w.wait("the end of all", 0, "SELECT count(*) FROM troupe.deadlines")
	require.Equal(w.t, []string{"o-2"}, w.keys("watch", "SELECT key FROM troupe.expectations WHERE raised_at IS NOT NULL"))
	require.Equal(w.t, []string{"o-1"}, w.keys("watch", "SELECT key FROM troupe.expectations WHERE met_at IS NOT NULL"))
	require.Equal(w.t, []string{"o-2"}, w.keys("watch", "SELECT key FROM troupe.joins WHERE status = 'expired'"))
	require.Equal(w.t, []string{"o-1"}, w.keys("watch", "SELECT key FROM troupe.joins WHERE status = 'complete'"))
}

// TestMessagesThatCameInTimeCountAfterAnOutageOfTheService: the service did not run when the time was over, and the messages
// had come before that. They wait behind others in Kafka when the service begins.
func TestMessagesThatCameInTimeCountAfterAnOutageOfTheService(t *testing.T) {
	t.Parallel()
	w := newWaiter(t)
	stop := w.start()
	w.open()
	stop()
	_, err := w.pools["watch"].Exec(t.Context(), allAreDue)
	require.NoError(t, err)
	w.comeInTime()
	w.start()
	w.judge()
}
