package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// PublishFailure describes a row that could not be published. Later rows of its key wait behind it.
type PublishFailure struct {
	Position int64
	ID       uuid.UUID
	Topic    string
	Attempts int           // failed tries, including this one
	Wait     time.Duration // until the next try; 0 when parked
	Parked   bool          // an operator must look at it
	Err      error
}

// A failure is a row that is to be recorded as failed.
type failure struct {
	PublishFailure
	item        *item
	maxAttempts int // 0: limited by time
}

// attemptsNow returns the number of failed attempts, including this one. It is at most the maximum of the column attempts, even if an
// operator has set the column to that maximum.
func (i *item) attemptsNow() int { return min(i.attempts, math.MaxInt32-1) + 1 }

// behindOthers returns the failure of a row that waits behind another row of its key. The failure must be recorded, since a stream delivers
// the row only once.
func behindOthers(i *item) failure {
	return failure{PublishFailure: PublishFailure{Position: i.row.Position, ID: i.row.ID, Topic: i.row.Topic}, item: i}
}

// judge decides what happens to a row that failed with err. rowFailed is false if the row is not at fault, and then t is empty. Attempts
// are counted per class of error: if the last attempt failed with an error of another class, this one counts as the first.
//
//	error                                         result
//	the broker is away, or refuses everything     rowFailed is false: wait; after UnknownTopic see postpone
//	the broker refuses the time of sending        the same, see byClock
//	no broker takes records of the partition      rowFailed is false; next retries until the record is published, see later
//	the topic is unknown, or has no schema        retry until UnknownTopic has passed, then park
//	the topic is denied (ACL)                     retry by the policy, then park
//	too large, an impossible topic, bad headers,
//	no such partition, not encodable              park
func (r *Relay) judge(i *item, err error) (t failure, rowFailed bool) {
	t = failure{
		PublishFailure: PublishFailure{
			Position: i.row.Position, ID: i.row.ID, Topic: i.row.Topic,
			Attempts: i.attemptsNow(), Err: err,
		},
		item: i,
	}
	class := kafka.Classify(err)
	switch {
	case retry.IsPermanent(err), unsendable(i, err):
		t.Parked, t.maxAttempts = true, 1
	case class == kafka.UnknownTopic, errors.Is(err, schemas.ErrNoSchema):
		if i.maxAttempts > 0 { // earlier attempts were counted for a topic that is denied
			t.Attempts = 1
		}
		t.Parked = t.Attempts > 1 && i.failingFor >= r.cfg.UnknownTopic
		t.Wait = r.untilNext(t.Attempts)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		if i.maxAttempts == 0 { // earlier attempts were counted for an unknown topic
			t.Attempts = 1
		}
		t.maxAttempts = r.cfg.Retry.Attempts
		t.Parked = r.cfg.Retry.Exhausted(t.Attempts)
		t.Wait = r.cfg.Retry.Wait(t.Attempts)
	default:
		return failure{}, false
	}
	if t.Parked {
		t.Wait = 0
	}
	return t, true
}

// unsendable reports whether the broker will never accept the record as it is.
func unsendable(i *item, err error) bool {
	return kafka.Classify(err) == kafka.Unsendable && !byClock(i, err)
}

// byClock reports whether the broker refused the record's timestamp, and that timestamp is the time of sending. Then the clock of this
// machine or of the broker is wrong, and the row is not at fault. The next try has another timestamp.
func byClock(i *item, err error) bool {
	return errors.Is(err, kerr.InvalidTimestamp) && (i.mapped == nil || i.mapped.message.Timestamp.IsZero())
}

// untilNext returns the time until the next try of a row whose topic may be created at any moment.
func (r *Relay) untilNext(attempts int) time.Duration {
	return min(r.cfg.Retry.Wait(attempts), r.cfg.UnknownTopic/10)
}

// A refusal records since when a partition, or any schema, has been refused again and again, and when it was refused last.
type refusal struct{ since, last time.Time }

// postpone decides about a row whose topic the broker refuses, or whose schema the registry refuses, although neither the row nor the relay
// is at fault. refused is the result of partitionOf for the partition, or anySchema. Once that has been refused for
// UnknownTopic, postpone returns a failure and true, so that the row waits for its next try. Otherwise such rows would fill the claims, and
// rows of other topics would wait. No such row is parked: when the topic or the schema is accepted again, all of its rows are published.
func (p *publisher) postpone(i *item, refused string, err error) (t failure, rowFailed bool) {
	now := time.Now()
	f, known := p.failing[refused]
	if !known || now.Sub(f.last) > p.relay.cfg.UnknownTopic+time.Minute { // a refused row is tried more often than that
		f.since = now
	}
	f.last = now
	p.failing[refused] = f
	if i.attempts == 0 && time.Since(f.since) < p.relay.cfg.UnknownTopic {
		return failure{}, false
	}
	return p.relay.later(i, err), true
}

// later returns a failure without a limit of attempts: the row is tried until it is published, and never parked.
func (r *Relay) later(i *item, err error) failure {
	return failure{item: i, PublishFailure: PublishFailure{
		Position: i.row.Position, ID: i.row.ID, Topic: i.row.Topic, Attempts: i.attemptsNow(), Err: err,
		Wait: r.untilNext(i.attemptsNow()),
	}}
}

// partitionOf returns the name of the record's partition in publisher.failing. Another partition of the topic may be on a broker that takes
// records.
func partitionOf(i *item) string { return fmt.Sprintf("%s/%d", i.record.Topic, i.record.Partition) }

// anySchema is the key of all refused schemas in publisher.failing. The key of a partition (partitionOf) has a slash. With a key for each
// schema, a service that writes a new type each time, to which the relay has no right at the registry, would hold all rows for ever: each
// schema would be refused for less than UnknownTopic.
const anySchema = "schemas"

// schemaOf returns the name of the row's schema within a round of publisher.prepare.
func schemaOf(i *item) string { return "schema/" + i.row.Topic + "/" + i.row.Type }

// recordAndReport records failures, and returns when they are stored. From then on a claim leaves out these rows, and the rows behind them.
// So the publisher calls it before it sends more rows. If the relay dies between the record and the report, only troupe.outbox_failures
// shows the row.
func (p *publisher) recordAndReport(ctx context.Context, failures []failure) error {
	if len(failures) == 0 {
		return nil
	}
	if err := p.insist(ctx, func() error { return p.source.recordFailures(ctx, failures) }); err != nil {
		return err
	}
	rows := make([]PublishFailure, len(failures))
	for n, t := range failures {
		rows[n] = t.PublishFailure
	}
	p.reportFailures(rows)
	return nil
}

// reportFailures counts recorded rows in Status, logs them, and calls the hook PublishFailed. It leaves out rows that only wait behind
// others.
func (p *publisher) reportFailures(rows []PublishFailure) {
	r := p.relay
	r.state.progressed(p.lease.ordinal(), func(s *Status) {
		for _, t := range rows {
			switch {
			case t.Parked:
				s.Parked++
			case t.Attempts > 0:
				s.Retried++
			}
		}
	})
	for _, t := range rows {
		switch {
		case t.Attempts == 0:
			continue
		case t.Parked:
			r.cfg.Log.Error().Err(t.Err).Int64("position", t.Position).Stringer("id", t.ID).Str("topic", topicName(t.Topic)).
				Int("attempts", t.Attempts).Msg("row parked: its key waits until an operator retries or discards it")
		default:
			r.quiet.failed("topic "+topicName(t.Topic), t.Err)
		}
		if r.cfg.Hooks.PublishFailed != nil {
			r.cfg.Hooks.PublishFailed(t)
		}
	}
}

// topicName returns a row's topic in a form that is safe in logs and errors: unprintable characters are replaced, and it has at most
// maxTopicName characters. The column may hold any text.
func topicName(topic string) string { return plain.Line(topic, maxTopicName) }

// recordFailures records failures, unless the term is over.
func (p *poll) recordFailures(ctx context.Context, failures []failure) error {
	p.join(ctx)
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return p.check(recordOutboxFailures(ctx, p.conn, p.lease, failures))
}

// behind returns false: a claim already leaves out rows that wait behind others.
func (p *poll) behind(*item) bool { return false }

// recordOutboxFailures records failures of rows of troupe.outbox. The error wraps errLost when the term is over.
func recordOutboxFailures(ctx context.Context, db querier, l *lease, failures []failure) error {
	failures = newestOf(failures)
	n := len(failures)
	positions, ids, topics, keys := make([]int64, n), make([][16]byte, n), make([]string, n), make([][]byte, n)
	attempts, most, waits, texts := make([]int, n), make([]int, n), make([]*time.Duration, n), make([]string, n)
	for i, t := range failures {
		positions[i], ids[i], topics[i], keys[i] = t.Position, t.ID, t.Topic, t.item.key
		attempts[i], most[i] = t.Attempts, t.maxAttempts
		if t.Err != nil {
			texts[i] = errorText(t.Err)
		}
		if !t.Parked && t.Attempts > 0 {
			waits[i] = &t.Wait
		}
	}
	var held int
	args := l.args(pg.Args{
		"positions": positions, "ids": ids, "topics": topics, "order_keys": keys,
		"attempts": attempts, "max_attempts": most, "waits": waits, "errors": texts,
	})
	err := db.QueryRow(ctx, recordFailures, args).Scan(&held)
	if unconvertible(err) { // the database's encoding lacks a character of a topic or an error
		toASCII(topics, texts)
		err = db.QueryRow(ctx, recordFailures, args).Scan(&held)
	}
	switch {
	case err != nil:
		return fmt.Errorf("record failures: %w", err)
	case held == 0:
		return fmt.Errorf("record failures: %w", errLost)
	}
	return nil
}

// newestOf returns the last failure of each position. After TRUNCATE … RESTART IDENTITY the log can contain a position twice, and only the
// row that was committed last can still be in the table.
func newestOf(failures []failure) []failure {
	last := make(map[int64]int, len(failures))
	for n, t := range failures {
		last[t.Position] = n
	}
	if len(last) == len(failures) {
		return failures
	}
	kept := make([]failure, 0, len(last))
	for n, t := range failures {
		if last[t.Position] == n {
			kept = append(kept, t)
		}
	}
	return kept
}

// errorText returns err's text without the bytes that a text column cannot store, cut to 1000 bytes.
func errorText(err error) string {
	const most = 1000
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
