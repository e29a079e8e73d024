package timeline

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

func comparePartitions(a, b partition) int {
	return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
}

// A group holds the committed offsets of one consumer group.
type group struct {
	empty bool // it has no members now
	next  map[partition]int64
}

// readGroups reads the offsets of the flow's groups, and of the groups in the configuration.
func (r *reading) readGroups(ctx context.Context) error {
	listed, err := kafka.Groups(ctx, r.client, r.cfg.Timeout/2)
	r.groupsIncomplete = errors.Is(err, kafka.ErrIncomplete)
	switch {
	case r.groupsIncomplete:
		r.unseen("consumer groups", err)
	case err != nil:
		return err
	}
	var names []string
	for _, g := range listed.Groups() {
		if r.cfg.Flow != "" && strings.HasPrefix(g, r.cfg.Flow+".") || slices.Contains(r.cfg.Groups, g) {
			names = append(names, g)
		}
	}
	for _, g := range r.cfg.Groups {
		switch {
		case slices.Contains(names, g):
		case r.groupsIncomplete: // its coordinator may have moved to a broker that answers
			names = append(names, g)
		default:
			r.unseen("group "+g, errors.New("there is none of that name"))
		}
	}
	if len(names) == 0 {
		return nil
	}
	for name, answer := range r.admin.FetchManyOffsets(ctx, names...) {
		if answer.Err != nil {
			r.unseen("group "+name, answer.Err)
			continue
		}
		g := group{empty: listed[name].State == "Empty", next: make(map[partition]int64)}
		for _, o := range answer.Fetched.Sorted() {
			if o.Err == nil {
				g.next[partition{o.Topic, o.Partition}] = o.At
			}
		}
		r.groups[name] = g
	}
	return nil
}
