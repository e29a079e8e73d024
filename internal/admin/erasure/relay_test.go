package erasure_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// TestARelayThatReadsTheLogGoesOnBehindErasedRows, also behind the row of its checkpoint: each message comes once, in order.
func TestARelayThatReadsTheLogGoesOnBehindErasedRows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := testkit.Flow(t) + ".members.events"
	brokers := testkit.Kafka(t)
	client, err := kafka.NewClient(brokers)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, kafka.Provision(t.Context(), client, kafka.Topic{Name: topic, Partitions: 1}))
	testkit.Topics(t, client, 1, topic)
	relaying := func() (stop func()) {
		r, err := relay.New(relay.Config{
			Pool: s.pool, Brokers: brokers, Service: "members", Source: relay.WAL, Delivery: relay.ExactlyOnce,
			Interval: 50 * time.Millisecond, Lease: 30 * time.Second, Log: testkit.Logger(t),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ran := make(chan error, 1)
		go func() { ran <- r.Run(ctx) }()
		return func() { cancel(); require.NoError(t, <-ran) }
	}
	send := func(key, text string) {
		s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Registered', convert_to($3, 'UTF8'))", topic, key, text)
	}
	erasable := func(rows int64) {
		t.Helper()
		testkit.Wait(t, "the rows to be published", func() (bool, error) {
			plan, err := s.desk.Plan(t.Context(), "c-1")
			if err == nil && (len(plan.InTheWay) > 0 || len(plan.Changes) != 1 || plan.Changes[0].Rows != rows) {
				err = fmt.Errorf("%+v", plan)
			}
			return err == nil, err
		})
	}
	stop := relaying()
	testkit.Wait(t, "a stream", func() (bool, error) { // until then published rows are deleted
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL").Scan(&n)
		return n == 1, err
	})
	stop()
	var want []string
	for _, round := range []string{"1", "2", "3"} {
		stop = relaying()
		send("c-2", "Bob "+round)
		send("c-1", "Ann "+round)
		send("c-1", "Ann again "+round)
		want = append(want, "Bob "+round, "Ann "+round, "Ann again "+round)
		erasable(2)
		if round == "2" {
			stop()
		}
		require.Equal(t, []erasure.Change{{Table: "outbox", Rows: 2, Effect: "deleted"}}, s.erase("c-1").Changes)
		if round != "2" {
			stop()
		}
	}
	var got []string
	for _, r := range testkit.Consume(t, brokers, topic).WaitN(len(want)) {
		got = append(got, string(r.Value))
	}
	require.Equal(t, want, got)
	require.Len(t, s.list("SELECT key FROM troupe.outbox"), 3)
}
