package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestPartitionsThatAreAddedAreReadFromTheirStart adds partitions while two members run and writes to them at once, and again
// while none runs.
func TestPartitionsThatAreAddedAreReadFromTheirStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	members := func() (stop func()) {
		var stops [2]func()
		for i := range stops {
			p := s.new()
			participant.Handle(p, count)
			stops[i] = s.start(p)
		}
		return func() { stops[0](); stops[1]() }
	}
	stop := members()
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	admin := kadm.NewClient(s.client)
	_, err := admin.CreatePartitions(t.Context(), 3, s.hop.Commands())
	require.NoError(t, err)
	testkit.Wait(t, "the brokers to know the partitions", func() (bool, error) {
		topics, err := admin.ListTopics(t.Context(), s.hop.Commands())
		return err == nil && len(topics[s.hop.Commands()].Partitions) == 4, err
	})
	client, err := kafka.NewClient(s.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	each := func(from int) {
		for partition := range int32(4) {
			for n := range 3 {
				r := kafka.Record(s.command("b", Count{N: from + n}))
				r.Partition = partition
				require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
			}
		}
	}
	each(1)
	s.waitCount(13, "SELECT count(*) FROM done")
	stop()
	each(4)
	members()
	s.waitCount(25, "SELECT count(*) FROM done")
	require.Equal(t, 25, s.count("SELECT total FROM counters WHERE key = 'a'")+s.count("SELECT total FROM counters WHERE key = 'b'"))
}
