package participant

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// optionalLimit limits one search for optional topics, which a start waits for.
const optionalLimit = 10 * time.Second

// optional reports whether the only handler of a topic is optional.
func (hs handlers) optional(topic string) bool {
	all := hs[topic][route{all: true}]
	return all != nil && all.optional
}

// provisionOptional creates the optional topics that do not exist. It returns the ones that cannot be consumed, since they are not there or
// this client may not read them, and the reasons.
func (p *Participant) provisionOptional(ctx context.Context, client *kgo.Client) (missing []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, optionalLimit)
	defer cancel()
	for _, topic := range slices.Sorted(maps.Keys(p.registered())) {
		if !p.registered().optional(topic) {
			continue
		}
		refused := kafka.Provision(ctx, client, kafka.Topic{Name: topic, Partitions: p.cfg.Partitions, Replicas: p.cfg.Replicas})
		there, failed := kafka.TopicIDs(ctx, client, topic)
		if _, exists := there[topic]; failed == nil && (exists || refused == nil) { // a broker names a new topic a moment later
			continue
		}
		missing, err = append(missing, topic), errors.Join(err, refused, failed)
	}
	return missing, err
}

// leaveOut sets the optional topics that the next membership does not consume.
func (p *Participant) leaveOut(missing []string, err error) {
	if len(missing) > 0 && !slices.Equal(missing, p.leftOut) {
		p.cfg.Log.Error().Err(err).Strs("topics", missing).
			Msg("topics that only other versions of this service need are not consumed: they are consumed once they exist and may be read")
	}
	p.leftOut = missing
}

// awaitLeftOut looks for the optional topics that are not consumed, at least once a minute. It ends the membership when it finds one, so that the
// next membership consumes it.
func (p *Participant) awaitLeftOut(ctx context.Context, client *kgo.Client, abandon context.CancelCauseFunc) {
	for look := 1; ; look++ {
		if !pause(ctx, formerAgain.Wait(look)) {
			return
		}
		missing, _ := p.provisionOptional(ctx, client)
		if slices.ContainsFunc(p.leftOut, func(topic string) bool { return !slices.Contains(missing, topic) }) {
			abandon(errMoreTopics)
			return
		}
	}
}
