package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// A Delivery is a delivery guarantee.
type Delivery string

// The deliveries. Under ExactlyOnce, which needs source WAL, a consumer that reads committed messages sees each row once. There are two
// exceptions. Rows may be repeated when Status.Repeats reports it. A recorded row is repeated if the relay dies between the commit of its
// Kafka transaction and the delete of its failure record.
const (
	AtLeastOnce Delivery = "at-least-once" // a crash repeats rows, under the same ids
	ExactlyOnce Delivery = "exactly-once"
)

var (
	// errAborted means that a Kafka transaction was not committed, or may not have been, so that the checkpoint must be read again.
	errAborted = errors.New("the Kafka transaction is given up")
	// errAgain makes work start the source again at once, without a log line and without a wait. The function that returns it has already
	// recorded failed rows, or changed how the next stream sends or reads.
	errAgain = errors.New("the stream begins again")
	// errStop means that only an operator can resolve the failure.
	errStop = errors.New("stopped")
)

// A transactor publishes whole Postgres transactions in Kafka transactions. Each Kafka transaction also writes the checkpoint, an LSN, to
// the relay's topic. Only Kafka transactions of rows that the log does not deliver write none, see publisher.withoutCheckpoint.
//
// After its first failure a transactor is closed. The next one takes the same transactional id, which ends a transaction that is still
// open, and reads the checkpoint from the topic. It takes over no position from the old transactor, only the limits of its sender.
type transactor struct {
	relay  *Relay
	db     *server // of the stream, once there is one
	client *kgo.Client
	sender *sender
	term   context.Context
	topic  string // topic of the checkpoint
	id     producerID

	at                checkpoint    // committed checkpoint
	next              checkpoint    // checkpoint after the last complete transaction with rows
	last              outboxrow.Row // position and id of the last row that the stream has settled
	withoutCheckpoint bool          // the Kafka transactions of this round store no checkpoint, see publisher.withoutCheckpoint
	open              bool          // a Kafka transaction is open
	begun             time.Time     // when the open transaction began
	lastEnd           time.Time     // when the last transaction ended
	rows              int           // number of rows in the open transaction
	whole             bool          // the open transaction contains only complete Postgres transactions
	newFailures       bool          // rows were recorded as failed since the last commit of a checkpoint
	upTo              wal.LSN       // rows before it are in the open transaction, or recorded; 0: no Postgres transaction in it is complete

	traced []outbox.PublishedRow // rows of the open transaction for the hook Traced
}

// A producerID is the id that the broker has given to the producer, with its epoch.
type producerID struct {
	id    int64
	epoch int16
}

// beginTimeout limits the time for taking the transactional id and creating the topic. The broker must first end a transaction that a
// predecessor left open.
const beginTimeout = 30 * time.Second

// transact makes the transactor of p, and takes the transactional id. That ends a transaction that a predecessor left open, and fences the
// predecessor.
func (r *Relay) transact(ctx, term context.Context, p *publisher) error {
	// A relay that was frozen until after its term must not fence its successor: the renewal then fails.
	if _, err := p.lease.renew(ctx, r.pool, nothing); err != nil {
		return err
	}
	client, err := r.newClient(kgo.TransactionalID(r.cfg.Slot), kgo.TransactionTimeout(r.cfg.TransactionTimeout))
	if err != nil {
		return err
	}
	t := &transactor{relay: r, client: client, sender: newSender(client), term: term, topic: topics.Relay(r.cfg.Slot)}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	err = t.identify(ctx)
	if err == nil {
		err = t.provision(ctx)
	}
	if err != nil {
		client.Close()
		return err
	}
	t.sender.limits, t.sender.steady, t.sender.single = p.sender.limits, p.sender.steady, p.sender.single
	p.tx, p.sender = t, t.sender
	return nil
}

// identify takes the transactional id.
func (t *transactor) identify(ctx context.Context) error {
	id, epoch, err := t.client.ProducerID(ctx)
	slot, most := t.relay.cfg.Slot, t.relay.cfg.TransactionTimeout
	switch {
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return fmt.Errorf("%w: a transaction time-out of %s is more than the broker allows: "+
			"lower it, or raise the broker's transaction.max.timeout.ms: %w", errStop, most, err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return fmt.Errorf("the broker refuses transactional id %s: allow this user Write and Describe on it: %w", slot, err)
	case err != nil:
		return fmt.Errorf("take transactional id %s: %w", slot, err)
	}
	t.id = producerID{id, epoch}
	return nil
}

// withoutCheckpoint reports whether items are published in Kafka transactions that store no checkpoint: rows of the table, and rows that
// failed before. The log does not deliver such rows now.
func (p *publisher) withoutCheckpoint(items []*item) bool {
	_, streams := p.source.(*stream)
	return !streams || items[0].failedBefore
}

// mayGoOn waits while the relay is paused, and returns true when the next round may begin. It does not wait within a Kafka transaction,
// since consumers would wait too. It returns false when idle has ended. It also returns false, with an error, when the stream ends during a
// pause: then another stream must begin, to keep the slot in use.
func (p *publisher) mayGoOn(idle context.Context) (bool, error) {
	if p.tx != nil && p.tx.busy() && idle.Err() == nil {
		return true, nil
	}
	s, streams := p.source.(*stream)
	if !streams {
		return p.relay.gate.pass(idle, nil), nil
	}
	if p.relay.gate.pass(idle, s.over) {
		return true, nil
	}
	if idle.Err() != nil {
		return false, nil
	}
	return false, s.endError()
}

// begin begins a Kafka transaction if none is open. If one is open and about to time out, it returns an error.
func (t *transactor) begin() error {
	if t.open {
		return t.inTime()
	}
	if err := t.client.BeginTransaction(); err != nil {
		return fmt.Errorf("%w: begin: %w", errAborted, err)
	}
	t.open, t.begun, t.rows, t.traced = true, time.Now(), 0, nil
	return nil
}

// inTime returns an error if the Kafka transaction is about to reach the broker's time-out, so that the relay aborts it before the broker
// does. An outage may cause that once. If it happens twice after the same checkpoint, the Postgres transaction is too large, and the error
// wraps errStop.
func (t *transactor) inTime() error {
	limit := t.relay.cfg.TransactionTimeout
	if !t.open || time.Since(t.begun) < limit*9/10 {
		return nil
	}
	r, at := t.relay, t.at.lsn
	if t.upTo == 0 && r.large != nil && *r.large == at {
		return fmt.Errorf("%w: the Postgres transaction behind %s is too large for a Kafka transaction of %s, %d rows are in it: "+
			"raise the transaction time-out, up to the broker's transaction.max.timeout.ms, "+
			"or deliver at least once until it is published", errStop, at, limit, t.rows)
	}
	if t.upTo == 0 {
		r.large = &at
	}
	return fmt.Errorf("%w: it was not complete after %s, with %d rows", errAborted, limit*9/10, t.rows)
}

// busy reports whether a commit is needed: a Kafka transaction is open, or rows were recorded as failed since the last commit of a
// checkpoint.
func (t *transactor) busy() bool { return t.open || t.newFailures }

// takes records that rows of the log are about to be sent. Their Postgres transaction may be incomplete.
func (t *transactor) takes() { t.whole = false }

// rememberLast stores the position and the id of i for the next checkpoint. The stream calls it when i and all rows before i are settled:
// published, recorded as failed, or left out since they were discarded.
func (t *transactor) rememberLast(i *item) {
	t.last = outboxrow.Row{Position: i.row.Position, ID: i.row.ID}
}

// reached records that all rows before upTo are in the Kafka transaction, or recorded as failed, and commits the transaction if a commit is
// due. end is the end of the last Postgres transaction with rows.
func (t *transactor) reached(s *stream, upTo wal.LSN, end commitEnd) error {
	t.whole = true
	if end.lsn > 0 {
		t.next.lsn, t.next.committed, t.next.position, t.next.id = end.lsn, end.at, t.last.Position, t.last.ID
	}
	if !t.busy() {
		s.advancePublished(upTo)
		return nil
	}
	t.upTo = upTo
	return t.commitIfDue(s)
}

// commitIfDue commits the Kafka transaction if it is complete, and either Config.Transactions have passed since the last commit or the
// relay is paused. Otherwise it returns an error if the transaction is about to time out.
func (t *transactor) commitIfDue(s *stream) error {
	if t.whole && t.busy() && (time.Since(t.lastEnd) >= t.relay.cfg.Transactions || t.relay.gate.closed()) {
		return t.commit(s)
	}
	return t.inTime()
}

// wait returns how long the publisher may wait for rows: until the next commit is due, but not longer than most.
func (t *transactor) wait(most time.Duration) time.Duration {
	if t.whole && t.busy() {
		return max(0, min(most, t.relay.cfg.Transactions-time.Since(t.lastEnd)))
	}
	return most
}

// commit commits the Kafka transaction, if it is complete, together with its checkpoint. Only after that may the checkpoint be confirmed to
// Postgres.
func (t *transactor) commit(s *stream) error {
	if !t.whole || !t.busy() {
		return nil
	}
	if err := t.begin(); err != nil {
		return err
	}
	if t.newFailures {
		var err error
		if t.next.recorded, t.next.message, err = t.writeMessage(t.term); err != nil {
			return fmt.Errorf("%w: %w", errAborted, err)
		}
	}
	at := t.next
	if err := t.commitWith(at.kafkaRecord(t)); err != nil {
		return err
	}
	r := t.relay
	upTo := max(at.lsn, t.upTo)
	t.at, t.upTo, t.newFailures, r.large = at, 0, false, nil
	t.sender.relax()
	s.advancePublished(upTo)
	r.state.progressed(0, func(s *Status) { s.Deleted, s.Checkpoint = s.Deleted+int64(t.rows), at.lsn.String() })
	if t.rows > 0 {
		call(r.cfg.Hooks.Deleted, t.rows)
	}
	return nil
}

// commitWith commits the Kafka transaction. If last is not nil, commitWith first produces this record and waits for its acknowledgement. All earlier records of
// the transaction must be acknowledged.
func (t *transactor) commitWith(last *kgo.Record) error {
	if last != nil {
		if err := t.produce(last); err != nil {
			return err
		}
	}
	// The client may get a new epoch by itself and continue. The records that it sent before are lost then, so the transaction must not be
	// committed.
	id, epoch, err := t.client.ProducerID(t.term)
	if now := (producerID{id, epoch}); err != nil || now != t.id {
		return fmt.Errorf("%w: producer id %v, was %v: %w", errAborted, now, t.id, errors.Join(err, errEpoch))
	}
	if t.rows > 0 {
		call(t.relay.cfg.Hooks.Ending, t.rows)
	}
	if err := t.client.EndTransaction(t.term, kgo.TryCommit); err != nil {
		return t.fenced(fmt.Errorf("%w: commit: %w", errAborted, err))
	}
	t.committed()
	return t.over()
}

// errEpoch means that records of the open transaction are lost, see end.
var errEpoch = errors.New("the producer was given another epoch")

// produce sends one record, and waits until it is acknowledged.
func (t *transactor) produce(r *kgo.Record) error {
	settled := make(chan error, 1)
	t.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) { settled <- err })
	if err := t.client.Flush(t.term); err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	if err := <-settled; err != nil {
		return t.fenced(fmt.Errorf("%w: send to %s: %w", errAborted, t.topic, err))
	}
	return nil
}

// over records that a transaction was committed or aborted without an error, and reads the new epoch.
func (t *transactor) over() error {
	t.open, t.lastEnd = false, time.Now()
	id, epoch, err := t.client.ProducerID(t.term) // the broker gives a new epoch with each end
	if err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	t.id = producerID{id, epoch}
	return nil
}

// fenced adds the likely causes to err, if err means that this client has lost the transactional id.
func (t *transactor) fenced(err error) error {
	if kafka.Classify(err) == kafka.Fenced {
		return fmt.Errorf("%w: the transaction timed out, or another client uses transactional id %s: "+
			"if that is the relay of another database, give one of the two slots another name", err, t.relay.cfg.Slot)
	}
	return err
}

// abort aborts the Kafka transaction. Its rows are claimed again.
func (t *transactor) abort() error {
	if err := t.client.EndTransaction(t.term, kgo.TryAbort); err != nil {
		return fmt.Errorf("%w: abort: %w", errAborted, err)
	}
	return t.over()
}

// close aborts an open Kafka transaction, so that consumers need not wait for its time-out, and closes the client. If the abort fails, the
// next relay that takes the transactional id ends the transaction.
func (t *transactor) close() {
	if t.open {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.term), releaseLimit)
		defer cancel()
		if t.client.AbortBufferedRecords(ctx) == nil {
			_ = t.client.EndTransaction(ctx, kgo.TryAbort)
		}
	}
	t.client.Close()
}

// A sent holds the results of one send.
type sent struct {
	rows     int // number of rows that were sent
	acked    []*item
	failures []failure // failures that are to be recorded
	failed   error     // an error of the broker, not of a row
}

// settleTx settles a send within a Kafka transaction. If a record was not acknowledged, it aborts the transaction or returns an error,
// after which the transactor is closed. Otherwise the client would commit the other records.
func (p *publisher) settleTx(ctx context.Context, s sent) error {
	t := p.tx
	if len(s.acked) == s.rows {
		if !t.withoutCheckpoint {
			t.rows += s.rows
			return p.source.remove(ctx, s.acked)
		}
		t.rows = 0 // settle counts the rows in Status
		if err := t.commitWith(nil); err != nil {
			return err
		}
		t.sender.relax()
		return p.settle(ctx, s.acked, nil)
	}
	switch {
	case ofTopics(s.failures) > 1 && !t.sender.single:
		// A broker may refuse all partitions of a transaction because of one of them. So next each topic is sent alone, and no failure is
		// recorded now.
		t.sender.single, s.failures = true, nil
	case len(s.failures) == 0 && s.failed == nil: // batches were halved
		t.sender.steady = true
	}
	// The failures are recorded before the abort. If the relay dies in between, the row is recorded, and not published.
	if err := p.recordAndReport(ctx, s.failures); err != nil {
		return err
	}
	switch {
	case s.failed != nil:
		return t.fenced(fmt.Errorf("%w: %w", errAborted, s.failed))
	case t.withoutCheckpoint:
		return t.abort()
	}
	return errAgain
}

// ofTopics returns the number of different topics of failures.
func ofTopics(failures []failure) int {
	names := make(map[string]struct{})
	for _, t := range failures {
		names[t.Topic] = struct{}{}
	}
	return len(names)
}

// repeats reports why rows may be published twice although delivery is exactly-once, in Status and in the log.
func (r *Relay) repeats(why string) {
	if r.cfg.Delivery != ExactlyOnce {
		return
	}
	r.cfg.Log.Warn().Str("why", why).Msg("exactly-once delivery has an exception now: some rows may be published twice")
	r.state.update(func(s *Status) { s.Repeats, s.RepeatsAt = why, time.Now() })
}
