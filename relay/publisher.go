package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// A source returns rows in order, and records their results. Only one goroutine uses it.
type source interface {
	// claim returns the rows that may be published now. It returns a row again until the row is removed or recorded. waited is the idle wait
	// before the claim.
	claim(ctx context.Context, waited time.Duration) ([]*item, error)
	// remove stores that the broker has acknowledged rows: a poll deletes the rows and their failure records, a stream deletes only the
	// failure records.
	remove(ctx context.Context, acked []*item) error
	// recordFailures settles rows that could not be published, under the term.
	recordFailures(ctx context.Context, failures []failure) error
	// behind reports whether a row waits behind a recorded row of its key, so that it must be recorded too.
	behind(i *item) bool
	// awaitRows waits for wait, or until there are rows, after a claim that found none. It may return earlier. It reports whether a
	// notification ended the wait.
	awaitRows(ctx context.Context, wait time.Duration) (woken bool)
}

// A publisher sends rows of the source to the broker and settles them, for one term.
type publisher struct {
	relay  *Relay
	lease  *lease
	source source
	client *kgo.Client // of the term; a transactor has its own
	sender *sender
	tx     *transactor // nil: at-least-once delivery

	renderer *renderer

	// failing has an entry for each partition that a broker refuses, by the result of partitionOf, and one for all schemas that the registry
	// refuses: anySchema.
	failing map[string]refusal
}

// round claims rows once, and publishes and settles them. After idle has ended it claims and sends no more rows, but until term ends it
// still settles rows that it has sent. found reports whether there were rows.
func (p *publisher) round(idle, term context.Context, waited time.Duration) (found bool, err error) {
	items, err := p.source.claim(idle, waited)
	if parked := (*rowsParked)(nil); errors.As(err, &parked) {
		p.reportFailures(parked.rows)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if len(items) == 0 {
		p.relay.state.progressed(p.lease.ordinal(), func(*Status) {})
		p.relay.state.lags(p.lease.ordinal(), 0)
		return false, nil
	}
	p.relay.state.update(func(s *Status) { s.Claimed += int64(len(items)) })
	p.relay.state.lags(p.lease.ordinal(), items[0].age())
	call(p.relay.cfg.Hooks.Claimed, len(items))
	if p.tx != nil {
		p.tx.withoutCheckpoint = p.withoutCheckpoint(items)
	}

	queue, failures, err := p.prepare(idle, items)
	if err != nil {
		return true, err
	}
	if err := p.recordAndReport(term, failures); err != nil {
		return true, err
	}
	for len(queue) > 0 && idle.Err() == nil {
		if queue, err = p.next(term, queue); err != nil {
			return true, err
		}
	}
	return true, nil
}

// age returns how long ago the row was written; 0 if that is not known or in the future.
func (i *item) age() time.Duration {
	if i.row.CreatedAt.IsZero() {
		return 0
	}
	return max(0, time.Since(i.row.CreatedAt))
}

// prepare makes the records of rows, and returns as queue the rows that can be sent. It returns a failure for each row that cannot be sent,
// and for each row that waits behind a row that failed before. It leaves out later rows of a key that fails now: they are claimed again.
func (p *publisher) prepare(ctx context.Context, items []*item) (queue []*item, failures []failure, err error) {
	absent, err := p.sender.findTopics(ctx, items)
	if err != nil {
		return nil, nil, err
	}
	held, sends := make(keys), make(keys)
	refused := make(map[string]error) // errors of schemas whose rows are not postponed yet, by schema
	var waits error                   // one of these errors
	p.renderer.reset(len(items))      // no row of the last round is in flight
	queue = make([]*item, 0, len(items))
	for _, i := range items {
		if held.has(i) {
			continue
		}
		if p.source.behind(i) {
			failures = append(failures, behindOthers(i))
			continue
		}
		var err error
		if i.unreadable != nil {
			err = i.unreadable
		} else if holdsCheckpoint(i.row.Topic) {
			err = errCheckpointTopic
		} else if i.mapped != nil {
			i.record, err = i.mapped.kafkaRecord()
		} else {
			i.record, err = p.renderer.kafkaRecord(&i.row)
		}
		if err != nil {
			err = retry.Permanent(err)
		} else if err = absent[i.row.Topic]; err != nil {
			err = fmt.Errorf("topic %s: %w", topicName(i.row.Topic), err)
		} else if i.mapped != nil || p.relay.cfg.Avro != nil {
			if len(refused) > 0 {
				err = refused[schemaOf(i)]
			}
			if err == nil {
				err = p.complete(ctx, i)
			}
		}
		if err == nil {
			i.size = sizeOf(i.record)
			queue = append(queue, i)
			if i.mapped != nil {
				sends.add(i)
			}
			continue
		}
		if !i.failedBefore && sends.has(i) {
			// Only for a mapped table: troupe.mapped_failures orders the rows of a key by the time at which they are recorded. If i were
			// recorded now, and an earlier row of its key, which is in the queue, failed later, the earlier row would wait behind i. So i is
			// not recorded in this round. It is claimed again when the earlier rows are settled.
			held.add(i)
			continue
		}
		t, rowFailed := p.relay.judge(i, err)
		if !rowFailed && errors.Is(err, schemas.ErrRefused) {
			if t, rowFailed = p.postpone(i, anySchema, err); !rowFailed {
				refused[schemaOf(i)], waits = err, err
				continue // so that UnknownTopic begins in this round for every refused schema
			}
		}
		if !rowFailed {
			return nil, nil, err // nothing was sent: all rows are claimed again
		}
		held.add(i)
		failures = append(failures, t)
	}
	if waits != nil { // a schema is refused for less than UnknownTopic: nothing is sent, and all rows are claimed again
		return nil, nil, waits
	}
	return queue, failures, nil
}

// next sends the first part of the queue and settles it. It returns the rows of the queue that are still to be sent.
func (p *publisher) next(ctx context.Context, queue []*item) ([]*item, error) {
	if err := p.ensureLease(ctx); err != nil {
		return nil, err
	}
	now, later := p.sender.cut(p.sender.unseenTopicsFirst(queue))
	if p.tx != nil {
		if err := p.tx.begin(); err != nil {
			return nil, err
		}
	}
	if err := p.send(ctx, now); err != nil {
		return nil, err
	}
	var acked, again []*item
	var failures []failure
	var failed error
	held, before := make(keys), make(keys)
	refusedTopics := make(map[string]error)
	batches := sizes(now)
	for _, i := range now {
		batch := batches[batchOf(i)]
		switch {
		case i.err == nil:
			acked = append(acked, i)
			if len(p.failing) > 0 {
				delete(p.failing, partitionOf(i))
			}
			if p.tx != nil && p.tx.withoutCheckpoint && i.mapped != nil && !i.failedBefore {
				before.add(i)
			}
			continue
		case held.has(i):
			continue
		case batch.rows > 1 && kafka.Classify(i.err) == kafka.Unsendable && !batch.byClock:
			// Either one row of the batch is at fault, or the batch is too large. Smaller batches show which.
			p.sender.halve(i.record.Topic, min(batch.bytes, p.sender.maxBatch))
			again = append(again, i)
			continue
		}
		// Earlier rows of i's key were acknowledged, but the transaction will be aborted. They must be published before i is recorded: in
		// the next transactions, with one row of each key in a send.
		if before.has(i) {
			p.sender.distinct = true
			held.add(i)
			continue
		}
		t, rowFailed := p.relay.judge(i, i.err)
		if errors.Is(i.err, errNotTaken) {
			t, rowFailed = p.relay.later(i, i.err), true
		}
		if !rowFailed {
			if cause := (*kerr.Error)(nil); errors.As(i.err, &cause) && !cause.Retriable && (kafka.Classify(i.err) == kafka.Unavailable || byClock(i, i.err)) {
				t, rowFailed = p.postpone(i, partitionOf(i), i.err)
			}
		}
		if !rowFailed {
			// The broker failed, not the row. Rows that were acknowledged are settled all the same, also later rows of the key. Otherwise
			// they would be sent again with every attempt.
			if failed == nil {
				failed = fmt.Errorf("send to %s: %w", i.record.Topic, i.err)
			}
			held.add(i)
			continue
		}
		held.add(i)
		failures = append(failures, t)
		if errors.Is(i.err, kerr.TopicAuthorizationFailed) {
			refusedTopics[i.record.Topic] = i.err
		}
	}
	if len(refusedTopics) > 0 && failed == nil && len(again) == 0 {
		var more []failure
		more, later = p.failRowsOfRefusedTopics(later, refusedTopics, held, before)
		failures = append(failures, more...)
	}
	if p.tx != nil {
		if err := p.settleTx(ctx, sent{len(now), acked, failures, failed}); err != nil {
			return nil, err
		}
		if len(acked) < len(now) {
			return nil, nil // none of its rows is published; rows that are not recorded are claimed again
		}
		return later, nil
	}
	if err := errors.Join(failed, p.settle(ctx, acked, failures)); err != nil {
		if cause := (*kerr.Error)(nil); errors.As(failed, &cause) && !cause.Retriable {
			return nil, errors.Join(err, p.replaceClient())
		}
		return nil, err
	}
	if len(again) > 0 {
		later = append(again, later...)
	}
	if len(held) > 0 {
		later = slices.DeleteFunc(later, held.has)
	}
	return later, nil
}

// failRowsOfRefusedTopics returns a failure for each row of the queue whose topic has just refused the relay, and the rows that are left of the
// queue. Otherwise the rows of a topic that is new to the client would be sent one by one, and each refusal would be a send, or a Kafka transaction,
// of its own. The refusal counts as a try for each of these rows: each of them would get the same answer. The function returns no
// failure for a row with an earlier row of its key that is still to be sent: the earlier row must be recorded first, see prepare. It adds the keys of
// the failures to held, and before has the keys of rows that the Kafka transaction must publish first.
func (p *publisher) failRowsOfRefusedTopics(queue []*item, refusedTopics map[string]error, held, before keys) (failures []failure, left []*item) {
	sends := make(keys)
	for _, i := range queue {
		err := refusedTopics[i.record.Topic]
		switch {
		case held.has(i): // claimed again
			continue
		case err == nil || sends.has(i) || before.has(i):
			sends.add(i)
			left = append(left, i)
			continue
		}
		t, _ := p.relay.judge(i, err)
		held.add(i)
		failures = append(failures, t)
	}
	return failures, left
}

// ensureLease renews the lease when a third of its length or less is left. A relay that is frozen after that may still send rows when it is
// awake again. Then rows are repeated, under the same ids. It deletes no row, since each delete checks the term again.
func (p *publisher) ensureLease(ctx context.Context) error {
	l := p.lease
	if l.left() > l.length/3 {
		return nil
	}
	_, err := l.renew(ctx, p.relay.pool, nothing)
	return err
}

// replaceClient replaces a client that repeats an earlier error. For example, a client that was refused a producer id fails each further
// record without a new request, even if the right was granted meanwhile. No record is in the old client, since the last send is settled.
func (p *publisher) replaceClient() error {
	client, err := p.relay.newProducer()
	if err != nil {
		return err
	}
	limits, patience := p.sender.limits, p.sender.patience
	p.client.Close()
	p.client, p.sender = client, newSender(client)
	p.sender.limits, p.sender.patience = limits, patience
	return nil
}

// send sends rows, and returns when each is acknowledged or refused. It counts the acknowledged rows in Status, and calls the hooks.
func (p *publisher) send(ctx context.Context, items []*item) error {
	r := p.relay
	began := time.Now()
	call(r.cfg.Hooks.BeforeSend, len(items))
	r.flight.Add(int64(len(items)))
	err := p.sender.send(ctx, items)
	r.flight.Add(-int64(len(items)))
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	acked := 0
	for _, i := range items {
		if i.err == nil {
			acked++
		}
	}
	if acked > 0 {
		r.state.progressed(p.lease.ordinal(), func(s *Status) { s.Published += int64(acked) })
		if r.cfg.Hooks.Acked != nil {
			r.cfg.Hooks.Acked(acked, time.Since(began))
		}
		p.trace(items, began)
	}
	return nil
}

// settle records failed rows, and then deletes acknowledged rows. It retries until that is done or the term is over, since rows that are
// not deleted are sent again.
func (p *publisher) settle(ctx context.Context, acked []*item, failures []failure) error {
	if err := p.recordAndReport(ctx, failures); err != nil {
		return err
	}
	if len(acked) == 0 {
		return nil
	}
	err := p.insist(ctx, func() error { return p.source.remove(ctx, acked) })
	if err != nil {
		return err
	}
	for _, i := range acked {
		if i.attempts > 0 {
			p.relay.quiet.recovered("topic " + topicName(i.row.Topic))
		}
	}
	p.relay.state.progressed(p.lease.ordinal(), func(s *Status) { s.Deleted += int64(len(acked)) })
	call(p.relay.cfg.Hooks.Deleted, len(acked))
	return nil
}

// insist calls do until it succeeds, until ctx ends, or until its error is errLost or errServer. It reports other errors as kind settle.
func (p *publisher) insist(ctx context.Context, do func() error) error {
	backoff := retry.Policy{Initial: 50 * time.Millisecond, Cap: time.Second}
	for failures := 1; ; failures++ {
		err := do()
		switch {
		case err == nil:
			if failures > 1 {
				p.relay.quiet.recovered("settle")
			}
			return nil
		case errors.Is(err, errLost), errors.Is(err, errServer):
			return err
		case ctx.Err() != nil:
			return err
		}
		p.relay.state.failed(err)
		p.relay.quiet.failed("settle", err)
		sleep(ctx, backoff.Wait(failures), nil)
	}
}

func call(hook func(int), n int) {
	if hook != nil {
		hook(n)
	}
}
