package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// discoverEvery is the interval at which topics are listed.
const discoverEvery = 5 * time.Second

// goneAfter is the time after which a topic that is not listed counts as deleted.
const goneAfter = 30 * time.Second

// askLimit limits the duration of a query to the brokers.
const askLimit = 15 * time.Second

type partition struct {
	topic     string
	partition int32
}

// A standing is the progress in one partition: the offsets up to which it is stored and read, and its end at the last query.
type standing struct {
	id           uuid.UUID // of the topic
	topic        int32     // the number of its name
	quiet        bool      // no message is unexpected there
	stored, next int64
	end          int64
}

// A session is the state of a Watcher in memory. All of it was read from the database and the brokers.
type session struct {
	*Watcher
	asks       *kgo.Client
	places     map[partition]*standing
	seen       map[partition]uuid.UUID // the partitions at the last listing
	absent     map[string]time.Time    // topics that were seen and are not listed, and since when
	discovered time.Time
	asked      time.Time // time of the last query of the ends
	judged     time.Time // the value of asked at the last judgement
	blocked    map[partition]*kgo.ErrDecompressTooLarge
	sizes      batchSizes

	memory
}

// discover lists the flow's topics, and topics of other flows that the declarations name.
func (s *session) discover(ctx context.Context) (map[partition]uuid.UUID, error) {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	listed, err := kadm.NewClient(s.asks).ListTopics(limited)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	found := make(map[partition]uuid.UUID)
	for name, detail := range listed {
		t, err := topics.Parse(name)
		watched := err == nil && t.Hop.Flow() == s.cfg.Flow && t.Kind != topics.Retry
		if !watched && !s.mentioned[name] {
			continue
		}
		if detail.Err != nil && s.seen == nil && kerr.IsRetriable(detail.Err) {
			return nil, fmt.Errorf("topic %s: %w", name, detail.Err)
		}
		if detail.Err != nil { // its partitions are unknown, and it is not deleted
			for p, id := range s.seen {
				if p.topic == name {
					found[p] = id
				}
			}
			continue
		}
		for id := range detail.Partitions {
			found[partition{name, id}] = uuid.UUID(detail.ID)
		}
	}
	s.keepAbsent(found, listed)
	s.discovered = time.Now()
	return found, nil
}

// keepAbsent adds the partitions of topics that were listed before and are not now, until they have not been listed for goneAfter: a broker
// that has just started may not know all topics.
func (s *session) keepAbsent(found map[partition]uuid.UUID, listed kadm.TopicDetails) {
	since := make(map[string]time.Time)
	for p, id := range s.seen {
		if _, there := listed[p.topic]; there {
			continue
		}
		first, known := s.absent[p.topic]
		if !known {
			first = time.Now()
		}
		since[p.topic] = first
		if time.Since(first) < goneAfter {
			found[p] = id
		}
	}
	s.absent = since
}

// ask queries the present ends of all partitions.
func (s *session) ask(ctx context.Context) error {
	if time.Since(s.discovered) >= discoverEvery {
		found, err := s.discover(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(found, s.seen) { // else the end of a deleted topic stays unknown, and nothing is judged
			return errAnew
		}
	}
	now := time.Now()
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	names := s.topicNames()
	ends, err := kafka.Ends(limited, s.asks, names...)
	if err != nil {
		return err
	}
	starts, err := kafka.Starts(limited, s.asks, names...)
	if err != nil {
		return err
	}
	for p, at := range s.places {
		start, hasStart := starts[p.topic][p.partition]
		end, hasEnd := ends[p.topic][p.partition]
		if !hasStart || !hasEnd || start.Err != nil || end.Err != nil { // one without an answer: its broker did not answer
			at.end = at.next + 1 // the end is unknown: judge nothing
			continue
		}
		at.end = end.Offset
		if at.next < start.Offset {
			s.cfg.Log.Warn().Str("topic", p.topic).Int32("partition", p.partition).Int64("messages", start.Offset-at.next).
				Msg("messages were deleted before they were read")
			at.next = start.Offset
		}
	}
	s.asked = now
	return nil
}

func (s *session) topicNames() (names []string) {
	for p := range s.places {
		names = append(names, p.topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reached reports whether all records that existed when the brokers were queried are stored, and are not judged yet.
func (s *session) reached() bool {
	if s.asked.Equal(s.judged) {
		return false
	}
	for _, at := range s.places {
		if at.stored < at.end {
			return false
		}
	}
	return true
}

// beginnings returns the offsets at which new partitions are begun.
func (s *session) beginnings(ctx context.Context, of []partition) (map[partition]int64, error) {
	if len(of) == 0 {
		return nil, nil
	}
	var names []string
	for _, p := range of {
		names = append(names, p.topic)
	}
	slices.Sort(names)
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	listed, err := kafka.Since(limited, s.asks, time.Now().Add(-s.cfg.Since), slices.Compact(names)...)
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	from := make(map[partition]int64)
	for _, p := range of {
		at, ok := listed.Lookup(p.topic, p.partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("the brokers do not list %s/%d", p.topic, p.partition)
		case at.Err != nil:
			return nil, fmt.Errorf("the brokers do not list the first offset of %s/%d: %w", p.topic, p.partition, at.Err)
		}
		from[p] = at.Offset
	}
	return from, nil
}
