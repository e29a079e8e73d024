package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// TestAReplayEndsWhenAskedWhileTheBrokerDoesNotAnswer: the broker has the request and does not answer it, so that the client does not know
// whether the record is stored. The end of a process, and the next relay of a reload, wait for the end of a replay.
func TestAReplayEndsWhenAskedWhileTheBrokerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "silent"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	asked, over := make(chan struct{}, 1000), make(chan struct{})
	t.Cleanup(func() { close(over) })
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked <- struct{}{}
		cluster.SleepControl(func() { <-over })
		return nil, nil, false
	})
	s := &stage{t: t, pool: testkit.Database(t), brokers: cluster.ListenAddrs(), flow: testkit.Flow(t)}
	s.insert("silent", "k", "1")
	s.published()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := relay.Replay{From: 1}.Run(ctx, s.config(), nil)
		ended <- err
	}()
	<-asked
	stop()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("the replay goes on")
	}
}
