package relay_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// A broker may refuse idempotent writes until somebody grants them. The client asks once.
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
	require.Equal(t, []string{"0", "1", "2"}, values(testkit.Consume(t, s.brokers, "main").WaitN(3)))
}

// A row of a service under the slot's name would be read as the place from which to stream.
func TestARowForTheRelaysOwnTopicIsParked(t *testing.T) {
	t.Parallel()
	for _, delivery := range []relay.Delivery{relay.ExactlyOnce, relay.AtLeastOnce} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.wal()
			cfg.Delivery, cfg.Slot = delivery, "own_"+strings.ReplaceAll(s.flow, "-", "_")
			place := topics.Relay(cfg.Slot)
			r := s.start(cfg)
			s.waitStream()
			s.insert(place, cfg.Slot, `{"lsn": "nonsense"}`)
			testkit.Wait(t, "a parked row", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'parked' AND last_error LIKE '%the relay''s own%'") == 1, nil
			})
			require.NoError(t, r.stop())
			s.start(cfg)
			s.insert(s.topic, "k", "1")
			testkit.Consume(t, s.brokers, s.topic).WaitN(1)
		})
	}
}
