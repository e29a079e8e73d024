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
var formerTopics string

// formerLimit limits the search for former retry topics, which a start waits for.
const formerLimit = 5 * time.Second

// findFormer returns the retry topics of the hop that an earlier version of the group consumed, or sent messages to, and no handler
// has any more. They are consumed as long as they exist: messages wait there, and the relay may publish more that the earlier version wrote.
// Each message runs once more; if it fails, its handler's present topics decide, and without a next one it becomes a dead
// letter. Retry topics of another hop, as the group had before its hop was renamed, are logged: their messages are for handlers
// that this version does not have.
func (p *Participant) findFormer(ctx context.Context, client *kgo.Client) (former []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, formerLimit)
	defer cancel()
	args := pg.Args{"group": p.cfg.Group, "consumed": slices.Sorted(maps.Keys(p.registered()))}
	rows, _ := p.cfg.Pool.Query(ctx, formerTopics, args)
	had, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for former retry topics: %w", err)
	}
	had = slices.DeleteFunc(had, func(topic string) bool {
		t, err := topics.Parse(topic)
		return err != nil || t.Kind != topics.Retry
	})
	if len(had) > 0 {
		there, err := kafka.TopicIDs(ctx, client, had...)
		if err != nil && kafka.Classify(err) == kafka.Unavailable {
			return nil, fmt.Errorf("look for former retry topics: %w", err)
		} else if err != nil {
			p.cfg.Log.Warn().Err(err).Strs("topics", had).Msg("former retry topics are not consumed: the broker does not say whether they exist")
		}
		for _, topic := range slices.Sorted(maps.Keys(there)) {
			if delayOf(topic, p.cfg.Hop) > 0 {
				former = append(former, topic)
				continue
			}
			p.cfg.Log.Error().Str("topic", topic).Msg("the group consumed this retry topic under another hop, and does not any more: " +
				"messages that wait there are not retried; run a version with that hop until the topic is empty, then delete it")
		}
	}
	if len(former) > 0 && !slices.Equal(former, p.former) {
		p.cfg.Log.Info().Strs("topics", former).
			Msg("retry topics that no handler has any more are consumed, since messages may wait there: delete them once they are empty")
	}
	return former, nil
}

// awaitFormer looks for former retry topics until the database answers, after a start at which it did not, and ends the
// membership if there are any, so that the next one consumes them.
func (p *Participant) awaitFormer(ctx context.Context, client *kgo.Client, abandon context.CancelCauseFunc) {
	policy := retry.Policy{Initial: time.Second, Cap: 30 * time.Second}
	for failed := 1; ctx.Err() == nil; failed++ {
		former, err := p.findFormer(ctx, client)
		if err == nil {
			if len(former) > 0 {
				abandon(errors.New("former retry topics were found"))
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(policy.Wait(failed)):
		}
	}
}

// consumed returns the topics that the group reads.
func (p *Participant) consumed() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(p.registered())), p.former)))
}
