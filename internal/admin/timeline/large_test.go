package timeline_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/kafka"
)

// TestALongKeyOfAMessageIsCut: a compressed batch of a few kilobytes has many keys of nearly a megabyte.
func TestALongKeyOfAMessageIsCut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events := s.hop("payment").Events()
	s.provision(events, 1)
	long := strings.Repeat("x", 600<<10)
	for _, id := range []string{"1", "2"} {
		s.produce(kafka.Record(envelope.Message{Topic: events, Key: []byte(long), Type: "Charged", ID: id, CorrelationID: "o-1", Payload: []byte("{}")}))
	}
	got := s.read("o-1", func(c *timeline.Config) { c.ScanAll, c.Databases = true, nil })
	require.Len(t, got.Entries, 2)
	for _, e := range got.Entries {
		require.Equal(t, long[:1024]+"…", e.Key)
	}
}

// TestATimelineHasALimitOfBytes: the console holds it in memory and renders it.
func TestATimelineHasALimitOfBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events := s.hop("payment").Events()
	s.provision(events, 1)
	const messages = 5000
	payload, err := json.Marshal(strings.Repeat("x", 4000))
	require.NoError(t, err)
	all := make([]*kgo.Record, messages)
	for i := range all {
		all[i] = kafka.Record(envelope.Message{Topic: events, Key: []byte("o-1"), Type: "Charged", ID: fmt.Sprint(i), Payload: payload})
	}
	require.NoError(t, s.client.ProduceSync(t.Context(), all...).FirstErr())
	got := s.read("o-1", func(c *timeline.Config) { c.ScanAll, c.Databases = true, nil })
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.Less(t, len(text), 20<<20)
	require.Greater(t, len(got.Entries), 1000)
	require.Len(t, got.Unseen, 1)
	require.Contains(t, got.Unseen[0].Why, "16 MiB")
}
