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

// formerAgain sets the waits between the looks for former retry topics. A look costs one statement and one request to the broker.
var formerAgain = retry.Policy{Initial: time.Second, Cap: time.Minute}

// errFormer ends a membership, since former retry topics were found that it does not consume.
var errFormer = errors.New("former retry topics were found")

// formerTopics holds the retry topics that another version of the group consumed, or sent messages to, that no handler uses now, and that exist. Each
// topic is in one of the lists.
type formerTopics struct {
	found   []string // of this hop: they are consumed
	foreign []string // of another hop, since the hop was renamed: they are not consumed
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
		return former, fmt.Errorf("look for former retry topics: %w", err)
	}
	for _, topic := range had {
		switch _, exists := there[topic]; {
		case !exists:
		case delayOf(topic, p.cfg.Hop) > 0:
			former.found = append(former.found, topic)
		default:
			former.foreign = append(former.foreign, topic)
		}
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

// awaitFormer looks for former retry topics that no member of the group consumes, at least once a minute. If it finds one, it ends the membership,
// and the next one consumes the topic. Such a topic may be of a version that came and was rolled back while this member ran, the broker may have
// learned of it late, or it may have been deleted and created again. A topic that other members consume is left to them: their version has the delays
// that follow. Two looks in a row, formerAgain.Cap apart, must find that no member consumes it, since their only member may be restarting.
func (p *Participant) awaitFormer(ctx context.Context, client *kgo.Client, abandon context.CancelCauseFunc) {
	trouble := p.repeated("look for members that consume a former retry topic")
	known := p.former
	var unread []string // no member consumed them at the last look
	wait := p.formerAgain.Wait(1)
	for look := 2; pause(ctx, wait); look++ {
		wait = p.formerAgain.Wait(look)
		former, err := p.findFormer(ctx, client)
		if err != nil {
			continue // the database or the broker is away, which is logged elsewhere
		}
		p.warnForeign(former.foreign, known.foreign)
		known.foreign = former.foreign
		found := slices.DeleteFunc(former.found, func(topic string) bool { return slices.Contains(known.found, topic) })
		if found, err = p.withoutMember(ctx, client, found); ctx.Err() != nil {
			return
		}
		trouble.report(err)
		if slices.ContainsFunc(found, func(topic string) bool { return slices.Contains(unread, topic) }) {
			abandon(errFormer)
			return
		}
		if unread = found; len(unread) > 0 {
			p.cfg.Log.Info().Strs("topics", unread).Msg("no member consumes these former retry topics: this one does if it finds so at its next look, too")
			wait = p.formerAgain.Cap
		}
	}
}

// withoutMember returns the given topics that no member of the group subscribes to. With an error it returns none.
func (p *Participant) withoutMember(ctx context.Context, client *kgo.Client, found []string) ([]string, error) {
	if len(found) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, formerLimit)
	defer cancel()
	subscribed, err := kafka.GroupTopics(ctx, client, p.cfg.Group)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(topic string) bool { return slices.Contains(subscribed, topic) }), nil
}

// consumed returns the topics that the group reads.
func (p *Participant) consumed() []string {
	all := slices.Concat(slices.Collect(maps.Keys(p.registered())), p.former.found)
	return slices.Sorted(slices.Values(slices.DeleteFunc(all, func(topic string) bool { return slices.Contains(p.leftOut, topic) })))
}
