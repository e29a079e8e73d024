package participant

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// A handler with RetryTopics has no order per key, and a failed message of it holds no key. The message goes to a retry topic, waits there until it
// is due, and runs again; if it fails, it goes to the next retry topic. All messages of a retry topic have the same delay. So they are due in the
// order of the partition, and the worker waits only for the first one.

// A HandlerOption changes how the messages of one handler are handled.
type HandlerOption func(*handler)

// RetryTopics gives up order per key for a handler. A message that fails is tried Config.Immediate times at once. Then it goes to the hop's topic of
// the first delay (topics.Hop.Retry), and is tried again after that delay; if it fails, it goes to the topic of the next delay, and after the last
// one it is a dead letter. No message waits behind it. Of the retry settings of a saga's step only the attempts apply, and Config.Retry does not
// apply; an error with retry.After skips the tries at once, and has no other effect. Delays are whole seconds. The topics are created at the start of
// Run; the relay publishes the messages to them.
//
// A retry topic is created with a retention of seven days more than its delay. Run logs a warning about an existing one that keeps messages for less
// than its delay. A message that is too large to be sent there is a dead letter at once.
//
// Use RetryTopics for work whose order does not matter and whose failures may last: thousands of held keys would fill troupe.held. A dead letter
// names the topic from which the message came first, and its offset on the last.
//
// Delays may change: retry topics that the group used before are consumed as long as they exist, also the ones of a version that came and was rolled
// back while a member ran. A message that fails there goes to the next of the present delays, or is a dead letter if there is none. Delete such a
// topic once it is empty and no member of the other version runs.
func RetryTopics(delays ...time.Duration) HandlerOption {
	return func(h *handler) {
		h.delays = delays
		if len(delays) == 0 {
			h.mistake = errors.Join(h.mistake, errors.New("retry topics without a delay"))
		}
		for _, d := range delays {
			if d < time.Second || d%time.Second != 0 {
				h.mistake = errors.Join(h.mistake, fmt.Errorf("retry topic of %s: want whole seconds, at least one", d))
			}
		}
	}
}

// Headers of messages on retry topics. They are not part of the message: handlers and dead letters do not see them.
const (
	retryPrefix    = deadletter.RetryPrefix
	retryTopic     = deadletter.RetryTopic
	retryGroup     = retryPrefix + "group"    // the group that sent it: the groups of a hop share its retry topics
	retryStage     = retryPrefix + "stage"    // number of the handler's delay for which it waits, counted from 1
	retryAttempts  = retryPrefix + "attempts" // attempts made so far
	retryFirstTime = retryPrefix + "first.failed"
	retryIdentity  = deadletter.RetryIdentity
)

//go:embed sql/send_again.sql
var sendAgain string

// again holds the retry state of a message from a retry topic.
type again struct {
	stage       int
	group       string // empty if an earlier version sent it there
	attempts    int
	firstFailed *time.Time
	identity    string // empty if an earlier version sent it there
}

// Limits of the headers on a retry topic: another producer than the group's members may have written them.
const (
	maxCount     = 1_000_000
	maxTopicName = 249
	maxIdentity  = 300 // of inbox.Identity: 255 bytes and a hash
)

// countOf parses the count in a header.
func countOf(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err == nil && n > maxCount {
		err = fmt.Errorf("%d: want at most %d", n, maxCount)
	}
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

// checkText returns an error if text is empty, has more than most bytes, or cannot be stored as text in Postgres.
func checkText(text string, most int) error {
	if text == "" || len(text) > most || !pgtext.Fits(text) {
		return fmt.Errorf("%d bytes: want 1 to %d bytes of UTF-8 without NUL", len(text), most)
	}
	return nil
}

// unwrap removes the headers of the retry topic from m. A value that the group's members cannot have written makes m unreadable.
func (m *message) unwrap() {
	own := m.Extra[:0:0]
	for _, h := range m.Extra {
		value := string(h.Value)
		var err error
		switch h.Key {
		case retryTopic:
			if err = checkText(value, maxTopicName); err == nil {
				m.Topic = value
			}
		case retryGroup:
			m.again.group = value
		case retryStage:
			m.again.stage, err = countOf(value)
		case retryAttempts:
			m.again.attempts, err = countOf(value)
		case retryFirstTime:
			var at time.Time
			switch at, err = time.Parse(time.RFC3339Nano, value); {
			case err != nil:
			case at.UTC().Year() < 1 || at.UTC().Year() > 9999: // the columns of a dead letter refuse it
				err = fmt.Errorf("time %s: want a year from 1 to 9999", at.UTC())
			default:
				m.again.firstFailed = &at
			}
		case retryIdentity:
			if err = checkText(value, maxIdentity); err == nil {
				m.again.identity = value
			}
		default:
			own = append(own, h)
		}
		if err != nil && m.unreadable == nil {
			m.unreadable = fmt.Errorf("header %s: %w", h.Key, err)
		}
	}
	m.Extra = own
}

// unwrapHeld removes the headers of the retry topic from m, which comes from troupe.held. If m has failed since it was held, its row counts all
// attempts, and the number in the headers is dropped.
func (m *message) unwrapHeld() {
	m.unwrap()
	m.stored = deadletter.WithoutRetry(m.stored)
	if m.held.attempts > 0 {
		m.again.attempts = 0
	}
}

// unordered handles a failed message whose handler has RetryTopics: another try at once, the next retry topic or a dead letter.
func (w *worker) unordered(m *message, f failure) error {
	if m.override != nil && m.override.Exhausted(m.attempts()+1) {
		return w.bury(m, f)
	}
	if m.again.stage == 0 && m.tries < w.p.cfg.Immediate && retry.NotBefore(f.err) == 0 {
		if m.held == nil || !m.needsPermit() { // a held message that waits for a permit is read again, and its tries would be forgotten
			w.failed(m, f)
			m.tries++
			if m.needsPermit() {
				return errNoPermit
			}
			return w.decide(m, w.runAlone(m))
		}
	}
	moved, err := w.moveOn(m, f)
	switch {
	case err != nil:
		return err
	case !moved:
		return w.bury(m, f)
	}
	w.failed(m, f)
	m.passed = reasonLater
	return nil
}

// moveOn sends m to its next retry topic. It returns false if there is none, or if m is too large for it. Each record of m is sent on once, however
// often the transaction is tried. If the same message comes in two records, both are sent on, since the copy of the first may be lost with its topic.
// The message takes effect once nevertheless, by its identity. If the process ends after the commit, m is delivered again and reported to Hooks.Passed
// as redelivered, not as later.
func (w *worker) moveOn(m *message, f failure) (moved bool, err error) {
	if m.handler == nil || m.again.stage >= len(m.handler.delays) {
		return false, nil
	}
	first := time.Now().UTC()
	if m.again.firstFailed != nil {
		first = *m.again.firstFailed
	} else if m.held != nil && m.held.firstFailed != nil { // its first failure counted no attempt
		first = m.held.firstFailed.UTC()
	}
	text := func(key, value string) envelope.Header { return envelope.Header{Key: key, Value: []byte(value)} }
	headers := append(m.headers(),
		text(retryTopic, m.Topic), text(retryGroup, w.p.cfg.Group), text(retryStage, strconv.Itoa(m.again.stage+1)),
		text(retryAttempts, strconv.Itoa(m.attempts()+1)), text(retryFirstTime, first.Format(time.RFC3339Nano)),
		text(retryIdentity, m.id))
	if m.unnamed { // its id is made of its first offset
		headers = append(headers, text(ce.HeaderID, m.ID))
	}
	if !w.p.sendable(m, headers) {
		return false, nil
	}
	step := fmt.Sprintf("%s/retry/%s/%d/%d/%d", m.id, m.topicID, m.partition, m.offset, m.epoch)
	args := pg.Args{
		"group": w.p.cfg.Group, "redrive": m.redrive, "step": indexable(step),
		"id": (*uuid.UUID)(nil), "topic": w.p.cfg.Hop.Retry(m.handler.delays[m.again.stage]), "key": m.Key, "type": m.Type,
		"headers": marshal(headers), "payload": m.Payload,
	}
	if id, err := uuid.Parse(m.ID); err == nil && id.String() == m.ID {
		args["id"] = &id
	}
	ended := []*message{m}
	if m.held != nil {
		ended = nil // its offset had ended when it was held
	}
	err = w.write(ended, func(b *pgx.Batch) {
		if m.held != nil {
			b.Queue(releaseHeld, w.releaseArgs(m))
		}
		b.Queue(sendAgain, args)
		b.Queue("SELECT pg_notify($1, '')", outboxrow.Channel)
	})
	if err == nil {
		w.p.cfg.Log.Debug().Str("place", m.place()).Str("class", string(f.class)).Msg("sent to a retry topic")
	}
	return true, err
}

// sendable reports whether a relay can send m with headers, and a participant can decode it. The limits are the ones of a redrive, whatever limits
// the producer of m had.
func (p *Participant) sendable(m *message, headers []envelope.Header) bool {
	var sent envelope.Message
	if sent.SetHeaders(headers) != nil {
		return false
	}
	if sent.Time.IsZero() { // the relay adds it
		sent.Time = time.Now()
	}
	sent.Source = cmp.Or(sent.Source, p.cfg.Source)
	headers = sent.Headers()
	return envelope.CheckHeaders(headers) == nil && deadletter.Size(m.Key, m.Payload, headers) <= deadletter.MaxBytes
}

// later holds records that were fetched and are not in the lane: the ones of a retry topic until they are due, and the ones of a large fetch until
// the lane has room.
type later struct {
	delay time.Duration // 0: the topic is no retry topic
	mu    sync.Mutex
	parts []waitingRecords
}

type waitingRecords struct {
	topicID uuid.UUID
	records []*kgo.Record
	fetched time.Time
}

// due returns the time at which the first record has waited for delay since its timestamp. If the timestamp is of a clock that is ahead, the time of
// the fetch counts instead.
func (part *waitingRecords) due(delay time.Duration) time.Time {
	at := part.records[0].Timestamp
	if at.After(part.fetched) {
		at = part.fetched
	}
	return at.Add(delay)
}

// delayOf returns the delay of a retry topic of hop; 0 for any other topic.
func delayOf(topic string, hop topics.Hop) time.Duration {
	if t, err := topics.Parse(topic); err == nil && t.Hop == hop {
		return t.Delay
	}
	return 0
}

// count returns the number of records.
func (l *later) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range l.parts {
		n += len(part.records)
	}
	return n
}

// release pushes the records that are due to the lane while it has room, and returns the wait until the next one is due. The lane rouses keep when it
// has room again.
func (w *worker) release(now time.Time) time.Duration {
	w.later.mu.Lock()
	defer w.later.mu.Unlock()
	if len(w.later.parts) == 0 {
		return time.Hour
	}
	for len(w.later.parts) > 0 {
		if w.brake.has(full) {
			return time.Hour
		}
		part := &w.later.parts[0]
		all, most := part.records, w.atOnce()
		for len(all)-len(part.records) < most && len(part.records) > 0 && !part.due(w.later.delay).After(now) {
			part.records = part.records[1:]
		}
		n := len(all) - len(part.records)
		w.push(part.topicID, all[:n])
		switch {
		case len(part.records) == 0:
			w.later.parts = w.later.parts[1:]
		case n < most:
			return part.due(w.later.delay).Sub(now)
		}
	}
	w.brake.set(notDue, false)
	return time.Hour
}

// brake pauses the fetching of a partition while there is at least one reason.
type brake struct {
	client  *kgo.Client
	part    map[string][]int32
	mu      sync.Mutex
	reasons [2]bool
}

type reason int

const (
	full   reason = iota
	notDue        // records are in later
)

func (b *brake) on() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reasons[full] || b.reasons[notDue]
}

func (b *brake) has(r reason) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reasons[r]
}

func (b *brake) set(r reason, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.reasons[full] || b.reasons[notDue]
	b.reasons[r] = on
	switch is := b.reasons[full] || b.reasons[notDue]; {
	case is && !was:
		b.client.PauseFetchPartitions(b.part)
	case was && !is:
		b.client.ResumeFetchPartitions(b.part)
	}
}
