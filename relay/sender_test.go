package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
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
			max:    1000,
			most:   2000,
			known:  map[string]struct{}{"a": {}, "b": {}, "small": {}},
			limits: map[string]int{"small": 100},
		}
		now, later := s.cut(c.queue)
		require.Len(t, now, c.want, c.name)
		require.Len(t, later, len(c.queue)-c.want, c.name)
	}
}

func TestALimitShrinksFastAndGrowsSlowly(t *testing.T) {
	t.Parallel()
	s := &sender{max: 1000, known: map[string]struct{}{}, limits: map[string]int{}}
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
