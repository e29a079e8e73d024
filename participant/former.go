package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

//go:embed sql/former_topics.sql
var sqlFormerTopics string

// formerLimit limits the search for former retry topics. The start of a membership waits for it.
const formerLimit = 5 * time.Second

// formerAgain sets the waits of awaitFormer. A look costs one statement and one request to the broker.
var formerAgain = retry.Policy{Initial: time.Second, Cap: time.Minute}

// errFormer ends a membership, since former retry topics were found that it does not consume.
var errFormer = errors.New("former retry topics were found")

// formerTopics holds the retry topics that an earlier version of the group consumed, or sent messages to, and that no handler uses now. Each topic is
// in one of the lists.
type formerTopics struct {
	found   []string // of this hop: they are consumed
	foreign []string // of another hop, since the hop was renamed: they are not consumed
	missing []string // the broker does not name them: they were deleted, or it does not know them yet
}

// findFormer returns the former retry topics of the group. Topics of its hop are consumed as long as they exist: messages wait there, and the relay
// may publish more that the earlier version wrote. Each such message runs once more. If it fails, it goes to the next retry topic that its handler
// has now, or becomes a dead letter.
func (p *Participant) findFormer(ctx context.Context, client *kgo.Client) (former formerTopics, err error) {
	ctx, cancel := context.WithTimeout(ctx, formerLimit)
	defer cancel()
	args := pg.Args{"group": p.cfg.Group, "consumed": slices.Sorted(maps.Keys(p.registered()))}
	rows, _ := p.cfg.Pool.Query(ctx, sqlFormerTopics, args)
	had, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return former, fmt.Errorf("look for former retry topics: %w", err)
	}
	had = slices.DeleteFunc(had, func(topic string) bool {
		t, err := topics.Parse(topic)
		return err != nil || t.Kind != topics.Retry
	})
	if len(had) == 0 {
		return former, nil
	}
	there, err := kafka.TopicIDs(ctx, client, had...)
	if err != nil {
		return formerTopics{missing: had}, fmt.Errorf("look for former retry topics: %w", err)
	}
	for _, topic := range had {
		list := &former.missing
		if _, exists := there[topic]; exists {
			if list = &former.foreign; delayOf(topic, p.cfg.Hop) > 0 {
				list = &former.found
			}
		}
		*list = append(*list, topic)
	}
	return former, nil
}

// useFormer sets the former retry topics that the next membership consumes.
func (p *Participant) useFormer(former formerTopics) {
	if len(former.found) > 0 && !slices.Equal(former.found, p.former.found) {
		p.cfg.Log.Info().Strs("topics", former.found).
			Msg("retry topics that no handler has any more are consumed, since messages may wait there: delete them once they are empty")
	}
	p.warnForeign(former.foreign, p.former.foreign)
	p.former = former
}

// warnForeign logs the retry topics of another hop that are not in known. Their messages are for handlers that this version does not have.
func (p *Participant) warnForeign(foreign, known []string) {
	for _, topic := range foreign {
		if !slices.Contains(known, topic) {
			p.cfg.Log.Error().Str("topic", topic).Msg("the group consumed this retry topic under another hop, and does not any more: " +
				"messages that wait there are not retried; run a version with that hop until the topic is empty, then delete it")
		}
	}
}

// awaitFormer looks for former retry topics again, until the database and the broker answer, and at least once a minute while the broker does not
// name a recorded topic: the broker may learn of a topic late, and a deleted topic may be created again. If awaitFormer finds a topic that is not
// consumed, it ends the membership, and the next one consumes the topic.
func (p *Participant) awaitFormer(ctx context.Context, client *kgo.Client, abandon context.CancelCauseFunc) {
	known := p.former
	for look := 1; ; look++ {
		if !pause(ctx, formerAgain.Wait(look)) {
			return
		}
		former, err := p.findFormer(ctx, client)
		if err != nil {
			continue
		}
		p.warnForeign(former.foreign, known.foreign)
		known.foreign = former.foreign
		if slices.ContainsFunc(former.found, func(topic string) bool { return !slices.Contains(known.found, topic) }) {
			abandon(errFormer)
			return
		}
		if len(former.missing) == 0 {
			return
		}
	}
}

// consumed returns the topics that the group reads.
func (p *Participant) consumed() []string {
	all := slices.Concat(slices.Collect(maps.Keys(p.registered())), p.former.found)
	return slices.Sorted(slices.Values(slices.DeleteFunc(all, func(topic string) bool { return slices.Contains(p.leftOut, topic) })))
}
