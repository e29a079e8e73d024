package participant_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// twoTopics returns a participant with handlers of Paid and Refunded of the hop bank, as projection.participant has them, and with OnAll for
// the hop shop, which adds a line and an entry for each event.
func (s *projection) twoTopics(shop topics.Hop) *participant.Participant {
	p := s.participant(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency = 20, 1 })
	participant.OnAll(p, []topics.Hop{shop}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
		for _, m := range ms {
			var body Paid
			if err := json.Unmarshal(m.Message.Payload, &body); err != nil {
				return err
			}
			if err := project(ctx, tx, nil, "shop "+string(m.Message.Key), body.N); err != nil {
				return err
			}
			if err := p.Outbox().Write(m.Context(), tx, outbox.Entry{Topic: p.Hop().Events(), Key: "shop", Body: Refunded{}}); err != nil {
				return err
			}
		}
		return nil
	})
	return p
}

// startRebuild starts a rebuild of handlers as an operator does, from the first message on.
func (s *projection) startRebuild(handlers ...string) (id int64) {
	s.t.Helper()
	for i, name := range handlers {
		handlers[i] = s.hop.String() + "/" + name
	}
	desk := rebuilds.Desk{Pool: s.pool}
	plan, err := desk.Plan(s.t.Context(), s.client, rebuilds.Spec{Handlers: handlers, From: time.UnixMilli(1)})
	require.NoError(s.t, err)
	id, err = desk.Start(s.t.Context(), plan, ann)
	require.NoError(s.t, err)
	return id
}

// TestARebuildOfOnAllAndOfAHandlerOfAnotherTopic checks that each topic has its own handlers: OnAll of one is no handler of all types of the
// other. New events that are in one batch with old ones keep their entries.
func TestARebuildOfOnAllAndOfAHandlerOfAnotherTopic(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	shop := topics.MustHop(s.hop.Flow(), "shop")
	testkit.Topics(t, s.client, 1, shop.Events())
	ofShop := func(all ...envelope.Message) []envelope.Message {
		for i := range all {
			all[i].Topic = shop.Events()
		}
		return all
	}
	unhandled := s.event("k-0", Paid{})
	unhandled.Type = "Noted"
	stop := s.start(s.twoTopics(shop))
	s.send(s.event("k-0", Paid{N: 0}), s.event("k-0", Refunded{N: 1}), unhandled, s.event("k-0", Paid{N: 2}))
	s.send(ofShop(s.events(0, 2, 3)...)...)
	s.waitCount(9, "SELECT count(*) FROM done")
	s.waitCount(3, "SELECT count(*) FROM troupe.handlers WHERE refusal IS NULL")
	stop()
	s.clear()
	s.send(ofShop(s.events(3, 2, 1)...)...)
	id := s.startRebuild("all", "Paid")
	s.start(s.twoTopics(shop))
	s.waitFinished(id)
	s.waitCount(10, "SELECT count(*) FROM done")
	require.Equal(t, map[string][]int{"k-0": {0, 2}, "shop k-0": upTo(4), "shop k-1": upTo(4)}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
}

// TestARebuildFromAnOffsetInAGap begins a rebuild from an offset above the watermark: events before it are handled for the first time or
// passed over.
func TestARebuildFromAnOffsetInAGap(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.newGap()
	s.send(s.event("k-3", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.clear()
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.waitFinished(s.rebuild(1, false, 2))
	require.Equal(t, map[string][]int{"k-0": {0}, "k-3": {0}}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARebuildOfATopicThatIsCreatedAgain ends, and the new topic is read from its start.
func TestARebuildOfATopicThatIsCreatedAgain(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	stop := s.start(s.participant(onePartition))
	s.send(s.events(0, 2, 3)...)
	s.waitCount(6, "SELECT count(*) FROM done")
	stop()
	id := s.rebuild(1, false)
	s.createAgain(s.bank.Events())
	s.clear()
	s.start(s.participant(onePartition))
	s.send(s.events(5, 1, 2)...)
	s.waitFinished(id)
	s.waitCount(2, "SELECT count(*) FROM done")
	require.Equal(t, []int{5, 6}, s.lines()["k-0"])
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.outbox"))
}

// createAgain deletes a topic and creates it again. The group must have no members.
func (s *projection) createAgain(topic string) {
	s.t.Helper()
	s.delete(topic)
	testkit.Topics(s.t, s.client, 1, topic)
}

// delete deletes a topic. The group must have no members.
func (s *projection) delete(topic string) {
	s.t.Helper()
	admin := kadm.NewClient(s.client)
	testkit.Wait(s.t, "the topic to be deleted", func() (bool, error) {
		_, _ = admin.DeleteTopics(s.t.Context(), topic)
		found, err := admin.ListTopics(s.t.Context(), topic)
		return err == nil && !found.Has(topic), nil
	})
	s.client.PurgeTopicsFromClient(topic)
}

// TestARebuildOfAHandlerWithLimits holds a failed key while the other keys wait for the handler's limits.
func TestARebuildOfAHandlerWithLimits(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.new(onePartition)
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
	}, participant.RateLimit(100, time.Second), participant.ConcurrencyLimit("bank", 2))
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	s.start(p)
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}), s.event("k-0", Paid{N: 1}))
	s.send(s.events(0, 3, 4)[1:]...)
	s.waitCount(13, "SELECT count(*) FROM done")
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	s.broken.Store(false)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {0, 1, 1, 2, 3}, "k-1": upTo(4), "k-2": upTo(4)}, s.lines())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARebuildOfARedrivenMessageWhoseIDTheRelayCompletes redrives an event without ce_id, and one whose id needs a source and has none, to which
// the relay adds its own. The original and the redriven message have one effect together, also after a rebuild, and after the
// database was set back.
func TestARebuildOfARedrivenMessageWhoseIDTheRelayCompletes(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"no id": "", "no source": "paid-1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			serve := func() (stop func()) { return s.start(s.participant(onePartition, onlyOnce)) }
			stop := serve()
			s.broken.Store(true)
			first := s.event("k-0", Paid{N: 0, Fail: "error"})
			first.ID, first.Source = id, ""
			s.send(first)
			for redrives := range 2 {
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = $1", redrives)
				s.broken.Store(redrives == 0)
				r, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann})
				require.NoError(t, err)
				require.Equal(t, 1, r.Redriven)
				require.Equal(t, 1, s.publish(s.bank.Events(), 1))
			}
			s.waitCount(1, "SELECT count(*) FROM done")
			s.clear()
			s.waitFinished(s.rebuild(1, false))
			s.send(s.event("k-0", Paid{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
			require.Equal(t, upTo(2), s.lines()["k-0"])

			stop()
			_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.dead_letters; DELETE FROM troupe.rebuild_partitions; DELETE FROM troupe.rebuilds; "+
				"DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark = -1; "+forget)
			require.NoError(t, err)
			s.clear()
			serve()
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
			require.Equal(t, upTo(2), s.lines()["k-0"])
		})
	}
}
