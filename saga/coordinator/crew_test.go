package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The events that orders await, or start by.
type (
	OrderPlaced struct {
		OrderID   string `json:"order_id"`
		Customer  string `json:"customer_id"`
		Reference string `json:"reference"`
	}
	OrderApproved struct{}
	OrderCleared  struct {
		Reference string `json:"reference"`
	}
)

// hops of the flow, the coordinator's first.
var hops = []string{"order", "payment", "inventory", "shipping"}

// awaiting returns the order flow with every feature that leaves rows: an event starts it too, it locks its customer, waits
// for an approval found by its key and a clearance found by its reference, and payment and inventory time out.
func awaiting(t testing.TB, timeout time.Duration) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	spec.Data = map[string]saga.Type{"reference": saga.String}
	for name, typ := range order(t).Spec().Data {
		spec.Data[name] = typ
	}
	spec.Lock = "data.customer_id"
	spec.Start = []saga.Start{{Hop: "shop", Event: "OrderPlaced", Set: saga.Mapping{
		"order_id": "event.order_id", "customer_id": "event.customer_id", "reference": "event.reference",
		"amount_cents": "500", "title": "7", "quantity": "1",
	}}}
	spec.Steps = slices.Clone(spec.Steps)
	for i := range spec.Steps {
		if spec.Steps[i].Timeout > 0 {
			spec.Steps[i].Timeout = saga.Duration(timeout)
		}
		if spec.Steps[i].Pivot {
			spec.Steps[i].Needs = append(slices.Clone(spec.Steps[i].Needs), "approval", "clearance")
		}
	}
	spec.Steps = append(spec.Steps,
		saga.Step{Name: "approval", Success: []saga.Answer{{Hop: "desk", Event: "OrderApproved"}}},
		saga.Step{Name: "clearance", Success: []saga.Answer{{
			Hop: "desk", Event: "OrderCleared", By: &saga.Association{Variable: "reference", Field: "reference"},
		}}})
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// crew runs the order flow in processes of its own, which may be killed.
type crew struct {
	t       testing.TB
	d       *saga.Definition
	c       *coordinator.Coordinator // starts and acts; it consumes nothing
	p       *participant.Participant // its participant, which does not run
	pools   map[string]*pgxpool.Pool // by hop
	client  *kgo.Client
	ends    *testkit.Consumer // of the coordinator's events
	task    task              // as all processes have it
	members []*process
	groups  []string // of the hops that have had members
	calls   atomic.Int64
}

func newCrew(t testing.TB, d *saga.Definition) *crew {
	s := &crew{t: t, d: d, pools: make(map[string]*pgxpool.Pool)}
	s.task = task{
		Flow: testkit.Flow(t), Brokers: testkit.Kafka(t), Definition: string(d.JSON()), Batch: 20, Session: session(),
		Slow: s.timeout() + 500*time.Millisecond,
	}
	for _, hop := range hops {
		s.pools[hop] = testkit.Database(t)
		_, err := s.pools[hop].Exec(t.Context(), effects+"; CREATE TABLE mended (at timestamptz NOT NULL DEFAULT now())")
		require.NoError(t, err)
	}
	var err error
	s.p, err = s.of("order").participant(s.pools["order"], testkit.Logger(t), participant.Hooks{})
	require.NoError(t, err)
	s.c, err = s.task.coordinator(t.Context(), s.p, s.pools["order"])
	require.NoError(t, err)
	s.client, err = kafka.NewClient(s.task.Brokers)
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	for _, hop := range append([]string{"shop", "desk"}, hops...) {
		testkit.Topics(t, s.client, 2, s.hop(hop).Events())
	}
	s.ends = testkit.Consume(t, s.task.Brokers, s.hop("order").Events())
	return s
}

func (s *crew) hop(name string) topics.Hop { return topics.MustHop(s.task.Flow, name) }

// timeout returns the time-out of the first step.
func (s *crew) timeout() time.Duration { return time.Duration(s.d.Spec().Steps[0].Timeout) }

func (s *crew) of(hop string) task {
	k := s.task
	k.Hop, k.URL = hop, testkit.DatabaseURL(s.t, s.pools[hop])
	return k
}

// spawn begins n processes of each hop.
func (s *crew) spawn(n int, hops ...string) {
	for range n {
		for _, hop := range hops {
			s.members = append(s.members, spawn(s.t, s.of(hop)))
			s.begun(hop)
		}
	}
}

// dismiss stops all processes, and requires that they end.
func (s *crew) dismiss() {
	s.t.Helper()
	for _, m := range s.members {
		require.NoError(s.t, m.Process.Signal(syscall.SIGTERM))
	}
	for _, m := range s.members {
		m.stopped(s.t)
	}
	s.members = nil
}

// serve runs a member of each hop in this process, until the test ends.
func (s *crew) serve(hops ...string) { s.serveWith(participant.Hooks{}, hops...) }

func (s *crew) serveWith(hooks participant.Hooks, hops ...string) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, hop := range hops {
		s.begun(hop)
		k := s.of(hop)
		k.Session = patient
		running.Go(func() { require.NoError(s.t, k.run(ctx, testkit.Logger(s.t), hooks)) })
	}
	s.t.Cleanup(func() { stop(); running.Wait() })
}

// begun records that hop's group has members.
func (s *crew) begun(hop string) {
	if group := s.hop(hop).String(); !slices.Contains(s.groups, group) {
		s.groups = append(s.groups, group)
	}
}

// call starts an order by the library, and tries again after a conflict.
func (s *crew) call(o OrderPlaced) {
	s.t.Helper()
	require.NoError(s.t, s.tryCall(o))
}

// tryCall starts an order, every second one by Submit.
func (s *crew) tryCall(o OrderPlaced) error {
	fields := map[string]any{
		"order_id": o.OrderID, "customer_id": o.Customer, "reference": o.Reference, "amount_cents": 500, "title": 7, "quantity": 1,
	}
	submits := s.calls.Add(1)%2 == 0
	for {
		var err error
		if submits {
			_, err = s.c.Submit(s.t.Context(), "order", fields, nil)
		} else {
			err = pgx.BeginFunc(s.t.Context(), s.pools["order"], func(tx pgx.Tx) error {
				_, err := s.c.Start(s.t.Context(), tx, "order", fields)
				return err
			})
		}
		if !errors.Is(err, coordinator.ErrConflict) {
			return err
		}
	}
}

func (s *crew) entry(hop, key string, body any) outbox.Entry {
	return outbox.Entry{Topic: s.hop(hop).Events(), Key: key, Body: body}
}

// emit publishes events of hops from the coordinator's outbox.
func (s *crew) emit(entries ...outbox.Entry) {
	s.t.Helper()
	require.NoError(s.t, s.tryEmit(entries...))
}

func (s *crew) tryEmit(entries ...outbox.Entry) error {
	return pgx.BeginFunc(s.t.Context(), s.pools["order"], func(tx pgx.Tx) error {
		return s.p.Outbox().Write(s.t.Context(), tx, entries...)
	})
}

// count returns the number that a query on a hop's database selects.
func (s *crew) count(hop, sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pools[hop].QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

// mend makes failing handlers succeed from now on.
func (s *crew) mend() {
	for _, hop := range hops {
		_, err := s.pools[hop].Exec(s.t.Context(), "INSERT INTO mended DEFAULT VALUES")
		require.NoError(s.t, err)
	}
}

// parked returns the sagas that wait for an operator.
func (s *crew) parked() (all []saga.State) {
	s.t.Helper()
	rows, err := s.pools["order"].Query(s.t.Context(), "SELECT state FROM troupe.sagas WHERE status = 'parked'")
	require.NoError(s.t, err)
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (saga.State, error) {
		var text []byte
		if err := row.Scan(&text); err != nil {
			return saga.State{}, err
		}
		return s.d.ReadState(text)
	})
	require.NoError(s.t, err)
	return all
}

// remedy is an operator's action on a parked saga.
type remedy int

const (
	retries  remedy = iota // the saga sends the exhausted command again
	redrives               // the hop's dead letter is redriven
	compensates
	remedies
)

func (s *crew) help(parked saga.State, r remedy) {
	s.t.Helper()
	stuck := saga.Stuck(s.d, parked)
	switch {
	case parked.Back && slices.Equal(stuck, []string{"shipping"}): // it has no compensation, and may have happened
		if strings.Contains(parked.Key, "-broken-") {
			s.act(parked, saga.Event{Kind: saga.ActResolve, Step: "shipping"})
			return
		}
		s.redrive(repair.Filter{Key: repair.Key(parked.Key)})
	case r == compensates, strings.Contains(parked.Key, "-undo-"):
		s.act(parked, saga.Event{Kind: saga.ActCompensate})
	case r == redrives:
		s.redrive(repair.Filter{Key: repair.Key(parked.Key)})
	default:
		for _, step := range stuck {
			s.act(parked, saga.Event{Kind: saga.ActRetry, Step: step})
		}
	}
}

// redrive redrives dead letters of all hops.
func (s *crew) redrive(f repair.Filter) {
	s.t.Helper()
	for _, hop := range hops[1:] {
		desk, err := repair.New(repair.Config{Pool: s.pools[hop]})
		require.NoError(s.t, err)
		_, err = desk.Redrive(s.t.Context(), f, repair.RedriveConfig{By: admin.Actor{Name: "ann", Reason: "a test"}, Rate: -1})
		require.NoError(s.t, err)
	}
}

// act applies e, unless the saga has changed meanwhile.
func (s *crew) act(st saga.State, e saga.Event) {
	s.t.Helper()
	e.Actor, e.Reason = "somebody", "a test"
	err := coordinator.ErrConflict
	for errors.Is(err, coordinator.ErrConflict) {
		err = pgx.BeginFunc(s.t.Context(), s.pools["order"], func(tx pgx.Tx) error {
			_, err := s.c.Act(s.t.Context(), tx, st.ID(), e)
			return err
		})
	}
	if !errors.Is(err, coordinator.ErrRefused) {
		require.NoError(s.t, err)
	}
}

// settle applies remedies until all sagas have ended, except those for which stays is true. It continues as long as sagas
// end.
func (s *crew) settle(started int, stays func(saga.State) bool) {
	s.t.Helper()
	const ended = "SELECT count(*) FROM troupe.sagas WHERE status IN ('completed', 'compensated', 'abandoned')"
	for before, through := -1, false; !through; {
		testkit.Wait(s.t, "another saga to end", func() (bool, error) {
			parked, staying := s.parked(), 0
			for i, p := range parked {
				if stays(p) {
					staying++
					continue
				}
				s.help(p, remedy(i%2))
			}
			n := s.count("order", ended) + staying
			more := n > before
			before, through = n, n >= started
			if more || through {
				return true, nil
			}
			return false, fmt.Errorf("%d of %d have ended or stay parked, %d are parked", n, started, len(parked))
		})
	}
	s.quiesce()
}

// quiesce waits until no message is under way, so that no late message can change the result.
func (s *crew) quiesce() {
	s.t.Helper()
	admin := kadm.NewClient(s.client)
	read := func() (lag, end int64, err error) {
		lags, err := admin.Lag(s.t.Context(), s.groups...)
		if err == nil {
			err = lags.Error()
		}
		lags.Each(func(l kadm.DescribedGroupLag) {
			for _, m := range l.Lag.Sorted() {
				lag += max(m.Lag, 0)
				end += m.End.Offset
			}
			if len(l.Lag) == 0 && err == nil {
				err = fmt.Errorf("group %s has read nothing", l.Group)
			}
		})
		return lag, end, err
	}
	const rows = "SELECT (SELECT count(*) FROM troupe.outbox) + (SELECT count(*) FROM troupe.held)"
	still := func() error {
		for _, hop := range hops {
			if n := s.count(hop, rows); n > 0 {
				return fmt.Errorf("%d rows under way in %s", n, hop)
			}
		}
		return nil
	}
	testkit.Wait(s.t, "nothing under way", func() (bool, error) {
		if err := still(); err != nil { // cheaper than the query to the broker
			return false, err
		}
		lag, end, err := read()
		if err != nil || lag > 0 {
			return false, fmt.Errorf("lag %d: %w", lag, err)
		}
		if err := still(); err != nil {
			return false, err
		}
		_, again, err := read()
		return again == end, err
	})
}
