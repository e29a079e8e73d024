package repair_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A producer sets the time of a record: one that no timestamp of Postgres can have is held, tried again and given up like any other.
func TestARecordOfAnyTimeIsHeldAndGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", false)
	s.participant()
	var records []*kgo.Record
	for i, at := range []int64{0, -1, 1, math.MaxInt64, math.MaxInt64 / 2, 253402300800000, 9224318015999999, 9223372036854776, time.Now().UnixMilli()} {
		r := kafka.Record(s.command(string(rune('a'+i)), Charge{N: i}))
		r.Timestamp = time.UnixMilli(at)
		records = append(records, r)
	}
	require.NoError(t, s.client.ProduceSync(t.Context(), records...).FirstErr())
	s.waitCount(len(records), openLetters)
	require.Len(t, s.letters(), len(records))
}
