package relay

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

func TestASendHoldsNoMoreThanOrderAllows(t *testing.T) {
	t.Parallel()
	row := func(topic string, size int) *item {
		return &item{record: &kgo.Record{Topic: topic}, size: size}
	}
	for _, c := range []struct {
		name  string
		queue []*item
		want  int // of the queue go out
	}{
		{"all of it", []*item{row("a", 10), row("b", 10), row("a", 10)}, 3},
		{"more than a batch holds", []*item{row("a", 900), row("a", 900)}, 2},
		{"no more than a send may hold", []*item{row("a", 900), row("a", 900), row("a", 200)}, 2},
		{"one that is larger than any batch goes alone, to be refused", []*item{row("a", 5000), row("b", 1)}, 1},
		{"and not behind others", []*item{row("b", 1), row("a", 5000)}, 1},
		{"the first to a topic goes without others of it", []*item{row("new", 1), row("a", 1), row("new", 1)}, 2},
		{"two that are new", []*item{row("new", 1), row("newer", 1), row("newer", 1)}, 2},
		{"a topic that refused larger batches", []*item{row("small", 50), row("a", 500), row("small", 60)}, 2},
		{"one row of it at least", []*item{row("small", 300), row("small", 1)}, 1},
	} {
		s := &sender{
			maxBatch: 1000,
			maxSend:  2000,
			seen:     map[string]struct{}{"a": {}, "b": {}, "small": {}},
			limits:   map[string]int{"small": 100},
		}
		now, later := s.cut(c.queue)
		require.Len(t, now, c.want, c.name)
		require.Len(t, later, len(c.queue)-c.want, c.name)
	}
}

func TestALimitShrinksFastAndGrowsSlowly(t *testing.T) {
	t.Parallel()
	s := &sender{maxBatch: 1000, seen: map[string]struct{}{}, limits: map[string]int{}}
	s.halve("t", 800)
	s.halve("t", 900)
	require.Equal(t, 400, s.limits["t"])
	sends := 0
	for ; s.limits["t"] > 0; sends++ {
		s.learn(&item{record: &kgo.Record{Topic: "t"}, size: s.limits["t"]})
	}
	require.Equal(t, 8, sends)
}

func TestASizeIsNeverBelowWhatTheRecordTakes(t *testing.T) {
	t.Parallel()
	// The longest varints there are: five bytes for each length and delta, ten for a timestamp's.
	r := &kgo.Record{Key: []byte("key"), Value: []byte(strings.Repeat("v", 100)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
	const most = 5 + 1 + 10 + 5 + (5 + 3) + (5 + 100) + 5 + (5 + 1 + 5 + 1)
	require.GreaterOrEqual(t, sizeOf(r), most)
}

// buffered is called for each record that is given to a client.
type buffered func()

func (b buffered) OnProduceRecordBuffered(*kgo.Record) { b() }

// If the records of a send to one topic had different limits, one of a key could be given up, and a later one be sent.
func TestTheRecordsOfASendToATopicAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	const most = 100 * time.Millisecond
	var givenUp time.Time
	client, err := kafka.NewClient(cluster.ListenAddrs(), kgo.ManualFlushing(), kgo.WithHooks(buffered(func() {
		for time.Since(givenUp) < most { // between the records the short limit ends
			runtime.Gosched()
		}
	})))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := newSender(client)
	givenUp = time.Now()
	s.patience = patience{most, time.Hour, time.Hour, map[string]giveUp{"t": {givenUp, 1}}}
	items := []*item{{record: &kgo.Record{Topic: "t"}}, {record: &kgo.Record{Topic: "t"}}}
	require.NoError(t, s.send(t.Context(), items))
	require.Same(t, items[0].record.Context, items[1].record.Context)
}
