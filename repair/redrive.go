package repair

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
)

// RedriveConfig says how a Redrive goes about it. By.Actor is required.
type RedriveConfig struct {
	By By
	// Rate is how many a second at most. Default 50; negative: as fast as it goes. What the hop did not bear once, it
	// shall not get all at once again.
	Rate float64
	// Progress, if it is set, is told after every dead letter.
	Progress func(RedriveResult)
}

// A RedriveResult is how far a Redrive came.
type RedriveResult struct {
	Total    int       `json:"total"` // chosen at the start
	Redriven int       `json:"redriven"`
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals"` // the first 100
	// Before is the bound that this Redrive took: only dead letters from before it. Given in a Filter it lets a second
	// call go on with what an interrupted one left, without those that have failed again since.
	Before time.Time `json:"before"`
}

// A Refusal is a dead letter that stayed as it was, and why.
type Refusal struct {
	ID  uuid.UUID `json:"id"`
	Err string    `json:"error"`
}

const maxRefusals = 100

// Redrive sends the chosen dead letters once more to the topics they came from, in the order in which they failed, each
// in a transaction of its own. Killed or cancelled it has done what it has done, and the same call goes on with the
// rest. With an error of the database it says in the result how far it came.
//
// One that cannot be redriven is refused and stays open; of those chosen by id, also one that is not open.
func (d *Desk) Redrive(ctx context.Context, f Filter, cfg RedriveConfig) (RedriveResult, error) {
	var r RedriveResult
	err := d.redrive(ctx, f, cfg, &r)
	if err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	return r, nil
}

func (d *Desk) redrive(ctx context.Context, f Filter, cfg RedriveConfig, r *RedriveResult) (err error) {
	if err := cfg.By.check(false); err != nil {
		return err
	}
	if err := f.checkForAction(); err != nil {
		return err
	}
	if f.Before.IsZero() {
		if f.Before, err = d.now(ctx); err != nil {
			return err
		}
	}
	r.Before, r.Refusals = f.Before, []Refusal{}
	if r.Total, err = d.Count(ctx, f); err != nil {
		return err
	}
	for _, id := range f.IDs { // a person has named them one by one, and wants to hear of each
		why, err := d.closed(ctx, id)
		if err != nil {
			return err
		}
		if why != nil {
			r.refuse(id, why)
		}
	}
	pace, end := newPace(cfg.Rate)
	defer end()
	var last *letter // taken; nil: none yet
	for {
		if err := pace(ctx); err != nil {
			return err
		}
		var refusal error
		next, err := d.redriveNext(ctx, f, last, cfg.By, &refusal)
		if err != nil || next == nil {
			return err
		}
		if last = next; refusal == nil {
			r.Redriven++
		} else {
			r.refuse(next.id, refusal)
		}
		if cfg.Progress != nil {
			cfg.Progress(*r)
		}
	}
}

func (r *RedriveResult) refuse(id uuid.UUID, why error) {
	if r.Refused++; r.Refused <= maxRefusals {
		r.Refusals = append(r.Refusals, Refusal{id, why.Error()})
	}
}

// closed says why the dead letter of that id cannot be acted on; nil: it is open.
func (d *Desk) closed(ctx context.Context, id uuid.UUID) (why, err error) {
	err = d.act(ctx, func(tx pgx.Tx) error {
		var status Status
		err := tx.QueryRow(ctx, "SELECT status FROM troupe.dead_letters WHERE id = $1", id).Scan(&status)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			why, err = fmt.Errorf("%w in this database", ErrNotFound), nil
		case err == nil && status != Open:
			why = notOpen(ctx, tx, id, status)
		}
		return err
	})
	return why, err
}

// letter is what a redrive and an edit need of a dead letter.
type letter struct {
	id            uuid.UUID
	group, topic  string
	topicID       uuid.UUID
	partition     int32
	offset        int64
	key           []byte
	headers       []byte
	payload       []byte
	edited        []byte
	correlationID string
	redrives      int
	lastFailed    time.Time
}

const selectLetter = `
SELECT id, consumer_group, topic, topic_id, partition, "offset", key, headers, payload, edited_payload, correlation_id,
       redrives, last_failed_at
FROM troupe.dead_letters`

func (l *letter) fields() []any {
	return []any{
		(*[16]byte)(&l.id), &l.group, &l.topic, (*[16]byte)(&l.topicID), &l.partition, &l.offset, &l.key, &l.headers, &l.payload, &l.edited,
		&l.correlationID, &l.redrives, &l.lastFailed,
	}
}

const insertRedrive = `
INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
VALUES (@id, @topic, @key, @type, @headers, @payload)`

// redriveNext takes the first dead letter behind last. Nil: there is none. A refusal leaves it as it is. Two who redrive
// the same ones meet at the first that is open: one waits for the other's commit and then takes the next.
func (d *Desk) redriveNext(ctx context.Context, f Filter, last *letter, by By, refusal *error) (next *letter, err error) {
	where := f.conditions()
	if last != nil {
		where.add("(last_failed_at, id) > (@last_at, @last_id)", "last_at", last.lastFailed)
		where.args["last_id"] = last.id
	}
	err = d.act(ctx, func(tx pgx.Tx) error {
		var l letter
		err := tx.QueryRow(ctx, selectLetter+`
			WHERE `+where.String()+`
			ORDER BY last_failed_at, id
			LIMIT 1
			FOR UPDATE`, where.args).Scan(l.fields()...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		next = &l
		entry, err := l.entry()
		if err != nil {
			*refusal = err
			return nil
		}
		args := recordArgs(actionRedrive, by)
		args["ids"] = []uuid.UUID{l.id}
		b := &pgx.Batch{}
		b.Queue(insertRedrive, entry)
		b.Queue("UPDATE troupe.dead_letters SET status = 'redriven' WHERE id = @id", pgx.NamedArgs{"id": l.id})
		b.Queue(recordLetters, args)
		b.Queue("SELECT pg_notify('" + outbox.Channel + "', '')")
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// entry is the outbox's row. Errors wrap ErrUnsendable.
func (l *letter) entry() (pgx.NamedArgs, error) {
	refuse := func(format string, args ...any) (pgx.NamedArgs, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrUnsendable}, args...)...)
	}
	m, err := read(l.headers, l.topicID, l.partition, l.offset)
	switch {
	case err != nil:
		return refuse("no relay sends such headers and no participant reads them (%w): have the producer send it again, and "+
			"discard this one", err)
	case m.Type == "" || strings.Contains(m.Type, "\x00"):
		return refuse("no handler can be for type %q: have the producer send it again with its ce_type, and discard this one",
			m.Type)
	}
	payload := l.payload
	if l.edited != nil {
		payload = l.edited
	}
	headers := l.redriven(m, payload)
	var fits envelope.Message
	if err := fits.SetHeaders(headers); err != nil {
		return refuse("with the headers of a redrive it has too many (%w): have the producer send it again, and discard this one",
			err)
	}
	if n := deadletter.Size(l.key, payload, headers); n > deadletter.MaxBytes {
		return refuse("key, headers and payload have %d bytes, and a relay sends at most %d: make the payload smaller by an "+
			"edit, or have the producer send it again, and discard this one", n, deadletter.MaxBytes)
	}
	id := l.id // where the message's own is no UUID it stands in the headers alone
	if own, err := uuid.Parse(m.ID); err == nil && own.String() == m.ID {
		id = own
	}
	return pgx.NamedArgs{
		"id": id, "topic": l.topic, "key": l.key, "type": m.Type, "payload": payload, "headers": envelope.MarshalHeaders(headers),
	}, nil
}

// redriven are the message's own headers and those that make it another than before. What a relay would fill in
// differently from how participants have seen the message is said.
func (l *letter) redriven(m message, payload []byte) []envelope.Header {
	var hs []envelope.Header
	for _, h := range m.original() {
		if h.Key != participant.HeaderRedrive && h.Key != participant.HeaderRedriveGroup {
			hs = append(hs, h)
		}
	}
	add := func(key, value string) { hs = append(hs, envelope.Header{Key: key, Value: []byte(value)}) }
	if m.CorrelationID == "" && l.correlationID != "" {
		add(envelope.HeaderCorrelationID, l.correlationID)
	}
	if m.ContentType == "" && formatOf("", payload) == formatAvro {
		add(envelope.HeaderContentType, envelope.Avro)
	}
	add(participant.HeaderRedrive, strconv.Itoa(l.redrives+1))
	add(participant.HeaderRedriveGroup, l.group)
	return hs
}

// newPace gives a function that returns at most so often a second.
func newPace(rate float64) (wait func(context.Context) error, end func()) {
	if rate == 0 {
		rate = 50
	}
	if rate < 0 {
		return func(ctx context.Context) error { return ctx.Err() }, func() {}
	}
	tick := time.NewTicker(max(time.Microsecond, time.Duration(float64(time.Second)/rate)))
	first := true
	return func(ctx context.Context) error {
		if first {
			first = false
			return ctx.Err()
		}
		select {
		case <-tick.C:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}, tick.Stop
}
