package watch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// discoverEvery is how often topics are looked for.
const discoverEvery = 5 * time.Second

// limit of a question to the brokers.
const askLimit = 15 * time.Second

type partition struct {
	topic     string
	partition int32
}

// A standing is how far one partition is read, and how far it went when the brokers were asked.
type standing struct {
	id           uuid.UUID // of the topic
	topic        int32     // its name's number
	quiet        bool      // nothing is unexpected there
	stored, next int64
	end          int64
}

// A session is what a Watcher has in memory, all of it from the database and the brokers.
type session struct {
	*Watcher
	asks       *kgo.Client
	places     map[partition]*standing
	seen       map[partition]uuid.UUID // partitions when they were last looked for
	discovered time.Time
	asked      time.Time // when the ends were
	judged     time.Time // of those ends, by which it was judged last

	memory
}

// discover finds the flow's topics, and those that its services declare to hear of.
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
		if detail.Err != nil || !watched && !s.mentioned[name] {
			continue
		}
		for id := range detail.Partitions {
			found[partition{name, id}] = uuid.UUID(detail.ID)
		}
	}
	s.discovered = time.Now()
	return found, nil
}

// ask learns up to where there are messages now.
func (s *session) ask(ctx context.Context) error {
	if time.Since(s.discovered) >= discoverEvery {
		found, err := s.discover(ctx)
		if err != nil {
			return err
		}
		for p, id := range found {
			if s.seen[p] != id {
				return errAnew
			}
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
		start, end := starts[p.topic][p.partition], ends[p.topic][p.partition]
		if start.Err != nil || end.Err != nil {
			at.end = at.next + 1 // it is not known how much there is: nothing is judged
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

// reached says whether all is stored that there was when the brokers were asked.
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

// beginnings are the offsets at which partitions are begun with.
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
	since := time.Now().Add(-s.cfg.Since).UnixMilli()
	listed, err := kadm.NewClient(s.asks).ListOffsetsAfterMilli(limited, since, slices.Compact(names)...)
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	from := make(map[partition]int64)
	for _, p := range of {
		at, ok := listed.Lookup(p.topic, p.partition)
		if !ok || at.Err != nil {
			return nil, fmt.Errorf("the brokers do not say where %s/%d begins: %v", p.topic, p.partition, at.Err)
		}
		from[p] = at.Offset
	}
	return from, nil
}
