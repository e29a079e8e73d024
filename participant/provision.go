package participant

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/retry"
)

// retryKept is the time for which a retry topic keeps a message after it is due.
const retryKept = 7 * 24 * time.Hour

// provision creates the topics of this hop and the events topics that it consumes. If the broker refuses to create topics, it is enough that they
// exist.
func (p *Participant) provision(ctx context.Context) error {
	names := map[string]bool{p.cfg.Hop.Commands(): true, p.cfg.Hop.Events(): true, p.cfg.Hop.DeadLetters(): true}
	for topic := range p.registered() {
		names[topic] = !p.registered().optional(topic)
	}
	var wanted []kafka.Topic
	var list []string
	for name, needed := range names {
		if !needed {
			continue
		}
		t := kafka.Topic{Name: name, Partitions: p.cfg.Partitions, Replicas: p.cfg.Replicas}
		if delay := delayOf(name, p.cfg.Hop); delay > 0 {
			t.Config = map[string]string{"retention.ms": strconv.FormatInt((delay + retryKept).Milliseconds(), 10)}
		}
		wanted = append(wanted, t)
		list = append(list, name)
	}
	client, err := kafka.NewClient(p.cfg.Brokers, p.cfg.Kafka...)
	if err != nil {
		return err
	}
	defer client.Close()
	trouble := p.repeated("make topics")
	policy := retry.Policy{Initial: 100 * time.Millisecond, Cap: 5 * time.Second}
	for failed := 1; ; failed++ {
		err := kafka.Provision(ctx, client, wanted...)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && kafka.Classify(err) != kafka.Unavailable {
			ids, listErr := kafka.TopicIDs(ctx, client, list...)
			if listErr == nil && len(ids) < len(list) {
				return err
			}
			err = listErr // another client has created them
		}
		var missing []string
		var reasons error
		if err == nil { // a topic that is only unavailable is not left out: time-outs would not wait for the answers in it
			missing, reasons, err = p.provisionOptional(ctx, client)
		}
		trouble.report(err)
		if err == nil {
			former, err := p.findFormer(ctx, client)
			if err != nil {
				p.cfg.Log.Warn().Err(err).Msg("it is not known which former retry topics there are: they are looked for again")
			} else {
				p.useFormer(former)
			}
			p.leaveOut(missing, reasons)
			p.checkRetention(ctx, client)
			p.checkRetryRetention(ctx, client)
			return nil
		}
		if !pause(ctx, policy.Wait(failed)) {
			return nil
		}
	}
}

// checkRetention logs a warning for each topic that keeps messages longer than the inbox keeps identities. A message that its sender sends again,
// after its identity was deleted, takes effect twice. A second delivery of one offset does not: the watermark recognises it.
func (p *Participant) checkRetention(ctx context.Context, client *kgo.Client) {
	if p.cfg.InboxRetention < 0 {
		return
	}
	read := slices.Sorted(maps.Keys(p.registered()))
	read = slices.DeleteFunc(read, func(topic string) bool { return delayOf(topic, p.cfg.Hop) > 0 }) // no sender writes there
	kept, err := kafka.Retention(ctx, client, read...)
	if err != nil {
		return // a role may lack the right to describe topics, and nothing depends on it
	}
	for topic, longest := range kept {
		if longest < 0 || longest > p.cfg.InboxRetention {
			p.cfg.Log.Warn().Str("topic", topic).Stringer("topic_retention", unlimited(longest)).
				Stringer("inbox_retention", p.cfg.InboxRetention).
				Msg("the topic keeps messages longer than the inbox remembers them: one sent twice so far apart takes effect twice")
		}
	}
}

// checkRetryRetention logs a warning for each retry topic from which the broker may remove a message before it is due.
func (p *Participant) checkRetryRetention(ctx context.Context, client *kgo.Client) {
	read := slices.DeleteFunc(p.consumed(), func(topic string) bool { return delayOf(topic, p.cfg.Hop) == 0 })
	if len(read) == 0 {
		return
	}
	kept, err := kafka.Retention(ctx, client, read...)
	if err != nil {
		return // as above
	}
	for topic, shortest := range kept {
		if shortest >= 0 && shortest <= delayOf(topic, p.cfg.Hop) {
			p.cfg.Log.Warn().Str("topic", topic).Stringer("topic_retention", shortest).
				Msg("the retry topic keeps messages for less than their delay: they may be removed before they are retried; raise its retention.ms")
		}
	}
}

// unlimited is a duration that a log line shows as unlimited if it is negative.
type unlimited time.Duration

func (u unlimited) String() string {
	if u < 0 {
		return "unlimited"
	}
	return time.Duration(u).String()
}
