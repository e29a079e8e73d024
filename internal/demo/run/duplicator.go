package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

const (
	copyShare = 0.06            // share of the records that are sent again
	copyLater = 4 * time.Second // maximum delay of a copy; half of them are sent at once
)

// A duplicator sends some of a flow's records again: the same key, value and headers, to the same partition. It makes no copy of
// a copy, so the number of copies is bounded.
type duplicator struct {
	client *kgo.Client
	random *rand.Rand
	log    zerolog.Logger
	copied atomic.Int64
}

// newDuplicator reads topics from their beginning.
func newDuplicator(brokers, topics []string, seed int64, log zerolog.Logger) (*duplicator, error) {
	client, err := kafka.NewClient(brokers,
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, fmt.Errorf("duplicator: %w", err)
	}
	return &duplicator{client: client, random: rand.New(rand.NewPCG(uint64(seed), 2)), log: log}, nil
}

// run makes copies until ctx ends. Copies that are due later are dropped.
func (d *duplicator) run(ctx context.Context) error {
	defer d.client.Close()
	seen := make(map[string]bool)
	var later []due
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := d.client.PollFetches(limited)
		cancel()
		now := time.Now()
		var copies []*kgo.Record
		fetches.EachRecord(func(r *kgo.Record) {
			id := newMessage(r).id
			if seen[id] {
				return
			}
			seen[id] = true
			switch {
			case d.copied.Load() == 0 && len(copies) == 0, d.random.Float64() < copyShare/2:
				copies = append(copies, copyOf(r))
			case d.random.Float64() < copyShare/2:
				later = append(later, due{now.Add(time.Duration(d.random.Float64() * float64(copyLater))), copyOf(r)})
			}
		})
		waiting := later[:0]
		for _, l := range later {
			if l.at.After(now) {
				waiting = append(waiting, l)
				continue
			}
			copies = append(copies, l.record)
		}
		later = waiting
		d.send(ctx, copies)
	}
	return nil
}

type due struct {
	at     time.Time
	record *kgo.Record
}

func copyOf(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

func (d *duplicator) send(ctx context.Context, copies []*kgo.Record) {
	if len(copies) == 0 {
		return
	}
	sent := 0
	for _, result := range d.client.ProduceSync(ctx, copies...) {
		if result.Err == nil {
			sent++
		}
	}
	d.copied.Add(int64(sent))
	d.log.Info().Int("records", sent).Msg("sent again")
}
