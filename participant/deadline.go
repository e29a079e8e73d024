package participant

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/outbox"
)

var (
	//go:embed sql/cancel_deadlines.sql
	cancelDeadlines string
	//go:embed sql/meet_deadline.sql
	meetDeadline string
	//go:embed sql/still_fired.sql
	stillFired string
	//go:embed sql/forget_late.sql
	forgetLate string
)

// maxAhead is the longest time from now at which a deadline may be due.
const maxAhead = 10 * 366 * 24 * time.Hour

// deadlineName matches valid names. They have no slash, since firingOf splits a header at the last one.
var deadlineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// A Deadline is a message that this hop sends to itself at a later time.
type Deadline struct {
	// Name selects the handler, registered with OnDeadline.
	Name string
	// Scope is the object that the deadline belongs to, such as an order: a scope has at most one deadline of a name. Default:
	// Key.
	Scope string
	// Key is the key of its message, by which it is ordered. Default: the key of the message being handled.
	Key string
	// After is the time from now, at most ten years. 0 without At: at once.
	After time.Duration
	// At is the due time, instead of After, by the database's clock. A time in the past is due at once.
	At time.Time
	// Body is the body that the handler gets, of the type that it expects.
	Body any
	// Keep leaves an existing deadline of this name and scope as it is.
	Keep bool
}

// Due is a deadline that is due, with its body decoded.
type Due[T any] struct {
	Body    T
	Name    string
	Scope   string
	At      time.Time        // when it was due
	Message envelope.Message // as in Command; its causation is the message that scheduled the deadline
	Attempt int              // as in Command
}

// OnDeadline registers fn as the handler of this participant's deadlines of a name: 1 to 100 letters, digits, dots, dashes and
// underscores. All else is as for On: fn emits no answer, may write with Outbox, schedule and cancel.
//
// A deadline that was cancelled or scheduled again after it had fired never reaches fn.
func OnDeadline[T any](p *Participant, name string, fn func(ctx context.Context, tx pgx.Tx, d Due[T]) error) {
	h := newHandler[T](p, p.cfg.Hop.Commands(), nil)
	h.deadline = name
	h.name = p.cfg.Group + "/deadline." + name
	if !deadlineName.MatchString(name) {
		h.mistake = errors.Join(h.mistake, fmt.Errorf("deadline %q: want a name of 1 to 100 letters, digits, dots, dashes and underscores", name))
	}
	h.bind = func(body any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			return Outcome{}, fn(ctx, tx, Due[T]{
				Body: bodyOf[T](body), Name: name, Scope: m.deadline.scope, At: m.deadline.at,
				Message: m.Message, Attempt: m.attempts() + 1,
			})
		}
	}
	p.register(h)
}

// Schedule makes d fire when it is due, if tx commits. It replaces a deadline of the same name and scope, also one that has
// fired and was not handled yet. In a handler's context d keeps the message's correlation and costs no round trip; then an
// error of Postgres comes later, as with Queue. With any other transaction d needs a Key or a Scope.
//
// Schedule refuses a deadline that no handler could handle, with a permanent error: a name without OnDeadline, no body or one of
// another type than its handler's, one larger than the outbox accepts, both After and At, a negative After, a time more than ten
// years ahead. If Codec fails with an error that is marked with retry.After, the error is not permanent, and keeps
// the mark. After any of these errors tx is unchanged.
//
// It may be called as soon as the handlers are registered, also by a process that never calls Run: any member of the group
// fires the deadline.
func (p *Participant) Schedule(ctx context.Context, tx pgx.Tx, d Deadline) error {
	var ds deadlineSet
	if err := p.plan(ctx, &ds, d); err != nil {
		return err
	}
	return p.queueOne(ctx, tx, &ds)
}

// Cancel removes the deadline of a name from a scope, if tx commits. It is no error if there is none. A deadline that has fired and was not handled
// yet is ignored when it comes.
//
// An empty scope means the key of the message being handled. Schedule takes the same scope for a deadline without a Key and a Scope. A deadline that
// was scheduled with a Key and no Scope has that Key as its scope: only a Cancel with this scope removes it.
func (p *Participant) Cancel(ctx context.Context, tx pgx.Tx, name, scope string) error {
	var ds deadlineSet
	if err := p.planCancel(ctx, &ds, name, scope); err != nil {
		return err
	}
	return p.queueOne(ctx, tx, &ds)
}

func (p *Participant) queueOne(ctx context.Context, tx pgx.Tx, ds *deadlineSet) error {
	var b pgx.Batch
	p.queueDeadlines(&b, ds)
	return Queue(ctx, tx, b.QueuedQueries[0].SQL, b.QueuedQueries[0].Arguments...)
}

// CancelAll cancels the deadlines of all names of a scope, for a scope that has ended. An empty scope is as for Cancel.
func (p *Participant) CancelAll(ctx context.Context, tx pgx.Tx, scope string) error {
	scope, err := scopeOf(ctx, scope, "")
	if err != nil {
		return classified{Permanent, fmt.Errorf("participant %s: cancel deadlines: %w", p.cfg.Group, err)}
	}
	return Queue(ctx, tx, cancelDeadlines, pg.Args{"group": p.cfg.Group, "scope": scope})
}

// deadlineEntry returns the outbox entry of the message that d sends when it fires.
func (p *Participant) deadlineEntry(ctx context.Context, d Deadline, scope string) outbox.Entry {
	e := outbox.Entry{
		Topic: p.cfg.Hop.Commands(), Key: d.Key, Body: d.Body,
		Headers: []envelope.Header{
			{Key: ce.HeaderDeadline, Value: []byte(p.cfg.Group + "/" + d.Name)},
			{Key: ce.HeaderDeadlineScope, Value: []byte(scope)},
		},
	}
	if cause := envelope.CauseOf(ctx); cause != nil && d.Key == "" {
		setKey(&e, cause.Message.Key)
	}
	return e
}

// setKey sets the key of e: as text if it is not empty and Postgres can store it as text, else as bytes. An empty key is set as bytes, since an Entry
// whose Key is "" has no key. A nil key leaves e without a key.
func setKey(e *outbox.Entry, key []byte) {
	if len(key) > 0 && pgtext.Fits(key) {
		e.Key = string(key)
	} else {
		e.KeyBytes = key
	}
}

// expects returns the handler of the deadlines of a name, or an error if this participant has none.
func (p *Participant) expects(name string) (*handler, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.registered()[p.cfg.Hop.Commands()][route{deadline: name}]
	if h == nil {
		return nil, errors.New("no handler expects it: register the name with OnDeadline")
	}
	return h, nil
}

// scopeOf returns the scope as stored in the table: the first of scope, key and the key of the message being handled that is
// not empty. A value that an index cannot hold is hashed.
func scopeOf(ctx context.Context, scope, key string) (string, error) {
	if scope == "" {
		scope = key
	}
	if cause := envelope.CauseOf(ctx); scope == "" && cause != nil {
		scope = string(cause.Message.Key)
	}
	if scope == "" {
		return "", errors.New("no scope, and no message with a key to take it from")
	}
	return indexable(scope), nil
}

// firing holds the group, the name and the scope of a deadline, as the headers of its message give them.
type firing struct {
	group, name, scope string
	at                 time.Time // from its row
	refused            bool      // the row is gone, has not fired, or has another key or payload
}

// firingOf reads a deadline from the headers of a message. It returns nil if the message is not a deadline's.
func firingOf(hs []envelope.Header) *firing {
	var f *firing
	for _, h := range hs {
		switch h.Key {
		case ce.HeaderDeadline:
			of := string(h.Value)
			slash := strings.LastIndexByte(of, '/')
			if f == nil && slash >= 0 {
				f = &firing{group: of[:slash], name: of[slash+1:]}
			}
		case ce.HeaderDeadlineScope:
			if f != nil && f.scope == "" {
				f.scope = string(h.Value)
			}
		}
	}
	return f
}

// route identifies a handler within a topic.
type route struct {
	typ, deadline string
	all           bool // of any type
	unhandled     bool // of any type without another handler
}

func (r route) String() string {
	if r.all {
		return "all types"
	}
	if r.unhandled {
		return "types without a handler"
	}
	if r.deadline != "" {
		return "deadline " + r.deadline
	}
	return r.typ
}

// route sets m's handler: by the name if m is the message of a deadline, else by m's type. It also reads the retry settings in a command's headers.
func (p *Participant) route(m *message) {
	to := route{typ: m.Type}
	if m.Topic == p.cfg.Hop.Commands() {
		if m.deadline = firingOf(m.Extra); m.deadline != nil {
			to = route{deadline: m.deadline.name}
		}
		m.override = p.retryOverride(m)
	}
	if p.foreign(m) {
		return
	}
	if m.handler = p.registered()[m.Topic][to]; m.handler == nil {
		m.handler = p.registered()[m.Topic][route{all: true}]
	}
	if m.handler == nil {
		if h := p.registered()[m.Topic][route{unhandled: true}]; h != nil && h.wants(m.Message) {
			m.handler = h
		}
	}
	if m.observed = p.wasObserved(m); m.observed {
		m.handler = nil
	}
	m.dropObserved()
}

// foreign reports whether m is the message of another group's deadline.
func (p *Participant) foreign(m *message) bool {
	return m.deadline != nil && m.deadline.group != p.cfg.Group
}

// meet removes the row of m's deadline. It returns false if the row is gone, has not fired, or has another key or payload than m. It is called when
// it is m's turn in the transaction and not before, since an earlier message of the same transaction may have cancelled the deadline.
//
// If it returns false, it removes m's identity from the inbox. After a failover to a standby that lagged, m may come before the message that
// scheduled the deadline is handled again, or before the deadline fires again. The deadline then fires later with the same id, and its message must
// be handled.
func (u *unit) meet(ctx context.Context, m *message) (is bool, err error) {
	m.deadline.refused = true
	id, err := uuid.Parse(m.ID)
	if err != nil {
		return false, nil
	}
	digest := sha256.Sum256(m.Payload)
	err = u.tx.QueryRow(ctx, meetDeadline, pg.Args{
		"group": u.w.p.cfg.Group, "scope": indexable(m.deadline.scope), "name": m.deadline.name, "id": id,
		"message_key": m.Key, "digest": digest[:], "encoded": len(m.Payload) > 0 && m.Payload[0] == 0 && envelope.HasSchemaID(m.ContentType),
	}).Scan(&m.deadline.at)
	if errors.Is(err, pgx.ErrNoRows) {
		_, day, _ := inbox.Recent(m.id)
		_, err := u.tx.Exec(ctx, forgetLate, pg.Args{
			"group": u.w.p.cfg.Group, "slot": day % slots, "id": id, "message_id": m.id, "redrive": m.redrive,
		})
		return false, u.failed(err)
	}
	m.deadline.refused = false
	return err == nil, u.failed(err)
}

// admitFired adds to u.toRun each message of a deadline that has fired and has neither been handled nor become a dead letter, although the inbox
// knows the message's identity. Then the identity is of another message: the id of a deadline is no secret, and a sender of commands may have used
// it.
func (u *unit) admitFired(ctx context.Context) error {
	admitted := false
	for _, m := range u.all {
		id, err := uuid.Parse(m.ID)
		if m.passed != reasonDuplicate || m.deadline == nil || u.w.p.foreign(m) || err != nil || !deadlineName.MatchString(m.deadline.name) {
			continue // any sender of commands may have written such a name, and no deadline has it
		}
		still := false
		err = u.tx.QueryRow(ctx, stillFired, pg.Args{
			"group": u.w.p.cfg.Group, "scope": indexable(m.deadline.scope), "name": m.deadline.name, "id": id, "message_id": id.String(), "redrive": m.redrive,
		}).Scan(&still)
		if err != nil {
			return err
		}
		if still {
			m.passed, admitted = "", true
		}
	}
	if admitted {
		u.toRun = u.toRun[:0]
		for _, m := range u.all {
			if m.passed == "" {
				u.toRun = append(u.toRun, m)
			}
		}
	}
	return nil
}

// ignored logs that meet has refused m, and calls Hooks.Late. attempt calls it after the transaction has committed.
func (p *Participant) ignored(m *message, d Delivery) {
	p.cfg.Log.Info().Str("deadline", m.deadline.name).Str("scope", readable(m.deadline.scope, 255)).Str("message_id", m.id).
		Msg("message of a deadline ignored: the deadline was cancelled or scheduled again after it had fired, has not fired, or has another key or payload")
	tell(p.cfg.Hooks.Late, d)
}
