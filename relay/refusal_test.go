package relay_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// A broker may refuse idempotent writes until they are granted. The client requests a producer id only once.
func TestARightThatIsGrantedLaterIsSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "main"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var granted atomic.Bool
	var asked atomic.Int64
	cluster.ControlKey(int16(kmsg.InitProducerID), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked.Add(1)
		if granted.Load() {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.InitProducerIDResponse)
		response.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return response, nil, true
	})
	s.brokers = cluster.ListenAddrs()
	r := s.start(s.config())
	for _, value := range []string{"0", "1", "2"} {
		s.insert("main", "k", value)
	}
	testkit.Wait(t, "the refusal", func() (bool, error) { return asked.Load() > 1, nil })
	require.Zero(t, r.Status().Published)
	granted.Store(true)
	require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, "main")))
}

// A row of a service under the slot's name would be read as the checkpoint from which to stream, also by the relay of another service that
// publishes with the same rights.
func TestARowForTheRelaysOwnTopicIsParked(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, delivery := range []relay.Delivery{relay.ExactlyOnce, relay.AtLeastOnce} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.wal()
			cfg.Delivery, cfg.Slot = delivery, "own_"+strings.ReplaceAll(s.flow, "-", "_")
			own, another := topics.Relay(cfg.Slot), topics.Relay("another_"+cfg.Slot)
			s.provision(kafka.Topic{Name: another, Partitions: 1})
			r := s.start(cfg)
			s.waitStream()
			s.insert(own, cfg.Slot, `{"lsn": "nonsense"}`)
			s.insert(another, "another", `{"lsn": "nonsense"}`)
			testkit.Wait(t, "parked rows", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked' AND last_error LIKE '%a relay''s own%'") == 2, nil
			})
			require.Empty(t, s.committed(another))
			require.NoError(t, r.stop())
			s.start(cfg)
			s.insert(s.topic, "k", "1")
			testkit.Consume(t, s.brokers, s.topic).WaitN(1)
		})
	}
}

// A topic is created first, and the right to it granted later.
func TestAttemptsWithoutATopicDoNotCountForThePolicy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	closed := s.flow + ".closed.commands"
	s.brokers = refusing(t, closed, func() *kerr.Error { return kerr.TopicAuthorizationFailed })
	cfg := s.config()
	cfg.Retry = retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 5}
	s.insert(closed, "k", "0")
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
		SELECT position, id, topic, key::bytea, 'retrying', 12, 0, now(), 'UNKNOWN_TOPIC_OR_PARTITION' FROM troupe.outbox`)
	seen := publishFailures(&cfg)
	s.start(cfg)
	for attempt := 1; attempt <= 5; attempt++ {
		failure := <-seen
		require.ErrorIs(t, failure.Err, kerr.TopicAuthorizationFailed)
		require.Equal(t, attempt, failure.Attempts)
		require.Equal(t, attempt == 5, failure.Parked)
	}
}

// The wait behind another row is not part of the time for which a topic may be missing.
func TestARowThatWaitedIsTriedForAsLongAsAnyOther(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.config()
			cfg.Source, cfg.Delivery = source, relay.AtLeastOnce
			seen := publishFailures(&cfg)
			s.start(cfg)
			s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, raw_headers) VALUES ($1, 'k', 'Thing', 'bad', '\x01')`, s.topic)
			bad := <-seen
			require.True(t, bad.Parked)
			s.insert(s.flow+".missing.commands", "k", "1")
			s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error, first_failed_at)
				SELECT position, id, topic, key::bytea, 'waiting', 0, 0, '', now() - interval '1 hour' FROM troupe.outbox WHERE raw_headers IS NULL
				ON CONFLICT (position) DO UPDATE SET first_failed_at = excluded.first_failed_at`)
			_, err := desk.Desk{DB: s.pool}.Discard(t.Context(), desk.RowID{ID: bad.ID}, admin.Actor{Name: "ann", Reason: "wrong"})
			require.NoError(t, err)
			for attempt := 1; attempt <= 2; attempt++ {
				failure := <-seen
				require.Equal(t, attempt, failure.Attempts)
				require.False(t, failure.Parked, "%v", failure.Err)
			}
		})
	}
}
