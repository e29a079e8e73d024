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

// optionalLimit limits the check of one optional topic. Each start of a membership waits for it.
const optionalLimit = 10 * time.Second

// optional reports whether the handler of topic was registered with OnAllOptional. Such a handler takes all types, so it is the only one of its topic,
// and the participant runs also if the topic cannot be consumed.
func (hs handlers) optional(topic string) bool {
	all := hs[topic][route{all: true}]
	return all != nil && all.optional
}

// provisionOptional creates the optional topics that do not exist. It returns the ones that cannot be consumed, since they are not there or
// this client may not see or read them, and the reasons. err says that it is not known which topics there are: the brokers do not answer.
func (p *Participant) provisionOptional(ctx context.Context, client *kgo.Client) (missing []string, reasons, err error) {
	for _, topic := range slices.Sorted(maps.Keys(p.registered())) {
		if !p.registered().optional(topic) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, optionalLimit)
		refused := kafka.Provision(limited, client, kafka.Topic{Name: topic, Partitions: p.cfg.Partitions, Replicas: p.cfg.Replicas})
		exists, failed := kafka.MayRead(limited, client, topic)
		cancel()
		switch {
		case failed != nil && kafka.Classify(failed) == kafka.Unavailable:
			return nil, nil, failed
		case failed == nil && (exists || refused == nil): // the metadata may lack a topic that was just created
		default:
			missing, reasons = append(missing, topic), errors.Join(reasons, refused, failed)
		}
	}
	return missing, reasons, nil
}

// leaveOut sets the optional topics that the next membership does not consume.
func (p *Participant) leaveOut(missing []string, err error) {
	if len(missing) > 0 && !slices.Equal(missing, p.leftOut) {
		p.cfg.Log.Error().Err(err).Strs("topics", missing).
			Msg("topics that only saga definitions of other versions read are not consumed: they are consumed once they exist and may be read; " +
				"until then steps may be timed out although their answers are there")
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
		missing, _, err := p.provisionOptional(ctx, client)
		if err == nil && slices.ContainsFunc(p.leftOut, func(topic string) bool { return !slices.Contains(missing, topic) }) {
			abandon(errMoreTopics)
			return
		}
	}
}
