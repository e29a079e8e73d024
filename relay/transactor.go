package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/topics"
)

// Delivery is what a consumer may see twice.
type Delivery string

// The deliveries.
const (
	AtLeastOnce Delivery = "at-least-once" // a crash repeats rows, under their ids
	ExactlyOnce Delivery = "exactly-once"  // a consumer that reads committed messages sees none twice; WAL only
)

var (
	// errAborted says that a Kafka transaction did not end well, or may not have: what is published must be read anew.
	errAborted = errors.New("the Kafka transaction is given up")
	// errAgain says the same when the reason is known and dealt with.
	errAgain = errors.New("the stream begins again")
	// errStop says that only a person can help.
	errStop = errors.New("stopped")
)

// A transactor ends Kafka transactions of whole Postgres transactions, each together with its checkpoint in the log. It is
// good for as long as all goes well: after any failure it is closed, and the next one first makes sure of how the last
// transaction ended (by taking its transactional id, which ends it) and then reads the checkpoint. What was in memory is not
// trusted.
type transactor struct {
	relay  *Relay
	db     *server // of the stream, once there is one
	client *kgo.Client
	sender *sender
	term   context.Context
	topic  string // of the checkpoint
	id     producerID

	at    checkpoint // committed
	next  checkpoint // behind the last whole transaction with rows
	last  outbox.Row // that was taken: its position and id
	xid   uint64     // that wrote it
	apart bool       // rows that the log does not tell now: their transactions hold no checkpoint
	open  bool       // a transaction is under way
	begun time.Time  // then
	ended time.Time  // the one before
	rows  int        // in it
	whole bool       // every row in it is of a Postgres transaction that is whole in it
	noted bool       // rows were recorded as trouble since the last one
	upTo  wal.LSN    // the checkpoint behind the whole ones; 0: none is
}

type producerID struct {
	id    int64
	epoch int16
}

// beginTimeout bounds the wait for a transactional id: a transaction that somebody left must be ended first.
const beginTimeout = 30 * time.Second

// transact takes the transactional id, which ends whatever a predecessor left open, and shuts it out.
func (r *Relay) transact(ctx, term context.Context, p *publisher) error {
	// One that woke up behind its term must not shut its heir out.
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

// apart says whether rows go out in transactions that hold no checkpoint: those that the log does not tell now.
func (p *publisher) apart(items []*item) bool {
	_, streams := p.source.(*stream)
	return !streams || items[0].troubled
}

// mayGoOn waits while the relay is paused, which it is not in the midst of a transaction: consumers would wait too.
func (p *publisher) mayGoOn(idle context.Context) bool {
	if p.tx != nil && p.tx.busy() && idle.Err() == nil {
		return true
	}
	return p.relay.gate.pass(idle)
}

// begin begins a transaction when none is under way.
func (t *transactor) begin() error {
	if t.open {
		return t.inTime()
	}
	if err := t.client.BeginTransaction(); err != nil {
		return fmt.Errorf("%w: begin: %w", errAborted, err)
	}
	t.open, t.begun, t.rows = true, time.Now(), 0
	return nil
}

// inTime sees to it that the broker is not the first to end the transaction. Once may be an outage; at the second time
// from the same checkpoint it is the Postgres transaction.
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

// busy says whether something waits for the end of a transaction.
func (t *transactor) busy() bool { return t.open || t.noted }

// takes is when rows of the log are about to go out: they may be of a transaction that is not whole.
func (t *transactor) takes(items []*item) {
	t.whole = false
	last := items[len(items)-1]
	t.last, t.xid = outbox.Row{Position: last.row.Position, ID: last.row.ID}, last.xid
}

// reached is when all rows before upTo are in the transaction, or recorded.
func (t *transactor) reached(s *stream, upTo, end wal.LSN) error {
	t.whole = true
	if end > 0 {
		t.next.lsn, t.next.position, t.next.id, t.next.xid = end, t.last.Position, t.last.ID, t.xid
	}
	if !t.busy() {
		s.passes(upTo)
		return nil
	}
	t.upTo = upTo
	return t.due(s)
}

// due ends the transaction if it is time.
func (t *transactor) due(s *stream) error {
	if t.whole && t.busy() && time.Since(t.ended) >= t.relay.cfg.Transactions {
		return t.commit(s)
	}
	return t.inTime()
}

// wait is how long the publisher may wait for rows.
func (t *transactor) wait(most time.Duration) time.Duration {
	if t.whole && t.busy() {
		return max(0, min(most, t.relay.cfg.Transactions-time.Since(t.ended)))
	}
	return most
}

// commit ends the transaction, if it is whole, together with its checkpoint. Only then may the checkpoint be confirmed to Postgres.
func (t *transactor) commit(s *stream) error {
	if !t.whole || !t.busy() {
		return nil
	}
	if err := t.begin(); err != nil {
		return err
	}
	at := t.next
	if err := t.end(at.record(t)); err != nil {
		return err
	}
	r := t.relay
	upTo := max(at.lsn, t.upTo)
	t.at, t.upTo, t.noted, r.large = at, 0, false, nil
	t.sender.relax()
	s.passes(upTo)
	r.state.progressed(0, func(s *Status) { s.Deleted, s.Checkpoint = s.Deleted+int64(t.rows), at.lsn.String() })
	if t.rows > 0 {
		call(r.cfg.Hooks.Deleted, t.rows)
	}
	return nil
}

// end produces a last record, if there is one, and commits. Every record before has its acknowledgement.
func (t *transactor) end(last *kgo.Record) error {
	if last != nil {
		if err := t.produce(last); err != nil {
			return err
		}
	}
	// The client may take a new epoch by itself and go on: what it sent before would be lost.
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
	return t.over()
}

var errEpoch = errors.New("the producer was given another epoch")

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

// over is when a transaction has ended as it was to.
func (t *transactor) over() error {
	t.open, t.ended = false, time.Now()
	id, epoch, err := t.client.ProducerID(t.term) // the broker gives a new epoch with each end
	if err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	t.id = producerID{id, epoch}
	return nil
}

// fenced adds what may be behind it when somebody else took the transactional id.
func (t *transactor) fenced(err error) error {
	if kafka.Classify(err) == kafka.Fenced {
		return fmt.Errorf("%w: time ran out, or somebody else uses transactional id %s: "+
			"if that is the relay of another database, give one of the two slots another name", err, t.relay.cfg.Slot)
	}
	return err
}

// abort ends a transaction of rows that are claimed again.
func (t *transactor) abort() error {
	if err := t.client.EndTransaction(t.term, kgo.TryAbort); err != nil {
		return fmt.Errorf("%w: abort: %w", errAborted, err)
	}
	return t.over()
}

// close gives up what is open, so that consumers need not wait for the time-out. If it can't, the next one who takes the
// transactional id does.
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

// sent is what became of one send.
type sent struct {
	rows     int
	acked    []*item
	troubled []trouble
	failed   error // not a row's
}

// settleTx settles a send within a transaction: all of it, or the transaction is given up, since a client commits whatever
// was acknowledged.
func (p *publisher) settleTx(ctx context.Context, s sent) error {
	t := p.tx
	if len(s.acked) == s.rows {
		if !t.apart {
			t.rows += s.rows
			return p.source.remove(ctx, s.acked)
		}
		t.rows = 0 // settle counts them
		if err := t.end(nil); err != nil {
			return err
		}
		t.sender.relax()
		return p.settle(ctx, s.acked, nil)
	}
	switch {
	case ofTopics(s.troubled) > 1 && !t.sender.single:
		// A broker may refuse a transaction's partitions together for one of them: alone, each speaks for itself.
		t.sender.single, s.troubled = true, nil
	case len(s.troubled) == 0 && s.failed == nil: // batches were halved
		t.sender.steady = true
	}
	// Before the abort: whoever dies here has the row recorded, and not published.
	if err := p.note(ctx, s.troubled); err != nil {
		return err
	}
	switch {
	case s.failed != nil:
		return t.fenced(fmt.Errorf("%w: %w", errAborted, s.failed))
	case t.apart:
		return t.abort()
	}
	return errAgain
}

func ofTopics(troubled []trouble) int {
	names := make(map[string]struct{})
	for _, t := range troubled {
		names[t.Topic] = struct{}{}
	}
	return len(names)
}

// repeats says in Status why rows may come twice.
func (r *Relay) repeats(why string) {
	if r.cfg.Delivery != ExactlyOnce {
		return
	}
	r.cfg.Log.Warn().Str("why", why).Msg("exactly once, but for this: some rows may come twice")
	r.state.update(func(s *Status) { s.Repeats, s.RepeatsAt = why, time.Now() })
}
