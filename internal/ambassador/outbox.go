package ambassador

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/outbox"
)

const (
	defaultWriters = 8
	mostPost       = 1_000_000 + 64<<10 // bytes of the largest payload, and of the fields around it
	writeLimit     = 10 * time.Second
	forgetAtOnce   = 1000
	maxAttribute   = 1024
)

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// OutboxConfig configures an Outbox. Pool is required.
type OutboxConfig struct {
	// Pool connects to the ambassador's database, which has Troupe's tables.
	Pool *pgxpool.Pool
	// Source is the ce_source of the messages: the service's name.
	Source string
	// Topics lists the topics that may be written to. None: all.
	Topics []string
	// Token is the token that a request must have as Authorization: Bearer. Empty: every request that reaches the handler may
	// write.
	Token string
	// Writers is the number of requests that are read and written at once; others get 503. Each may hold 1 MB. Default 8.
	Writers int
	// Log gets the database errors, which are not in the response.
	Log zerolog.Logger
}

// An Outbox takes messages by HTTP from a service that has no database, and writes them to the ambassador's outbox. It is an
// http.Handler for POST on any path; it may be used concurrently.
//
//	POST /outbox
//	{"id": "0198c5ce-…", "topic": "order.courier.commands", "key": "o-1", "type": "CollectParcel", "payload": {…}}
//
// id is a UUID that the service makes, once for each message. The service may post the message again under it until it gets a
// response.
//
//	201  it was written to the outbox
//	200  it was written before: nothing was written again
//	400  it is not a valid message      401  the token is missing or wrong
//	403  the topic may not be written   405  not POST
//	409  another message has that id    413  too large
//	415  not application/json           429  too many wrong tokens
//	503  busy, or the database cannot be written
//
// After 429 and 503 post it again, after the seconds of Retry-After.
//
// These fields are optional: key; headers, an object of texts; correlation_id and causation_id, which are the
// ce-correlationid and ce-id of the command that the message follows from. The payload is written as the JSON in the request.
// Of Troupe's own attributes the headers may have ce_outcome and ce_idempotencykey. A message with another one, such as
// ce_source or ce_sagaid, or with a header or type that begins with "troupe.", is refused with 400, since those name the
// writer and the saga of a message.
type Outbox struct {
	cfg   OutboxConfig
	out   *outbox.Outbox
	token door.Token
	turns chan struct{}
}

// NewOutbox checks the configuration and sets the defaults. It does no I/O.
func NewOutbox(cfg OutboxConfig) (*Outbox, error) {
	if cfg.Pool == nil {
		return nil, errors.New("ambassador: outbox config without a pool")
	}
	if cfg.Writers < 0 {
		return nil, fmt.Errorf("ambassador: writers %d: want 1 or more", cfg.Writers)
	}
	if cfg.Writers == 0 {
		cfg.Writers = defaultWriters
	}
	out, err := outbox.New(outbox.Config{Source: cfg.Source})
	if err != nil {
		return nil, fmt.Errorf("ambassador: %w", err)
	}
	cfg.Topics = slices.Clone(cfg.Topics)
	o := &Outbox{cfg: cfg, out: out, turns: make(chan struct{}, cfg.Writers)}
	o.token.Set(cfg.Token)
	return o, nil
}

// posted is the body of a service's request.
type posted struct {
	ID            string            `json:"id"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key"`
	Type          string            `json:"type"`
	Payload       json.RawMessage   `json:"payload"`
	Headers       map[string]string `json:"headers"`
	CorrelationID string            `json:"correlation_id"`
	CausationID   string            `json:"causation_id"`
}

// refused is the status and the reason of a request that is refused.
type refused struct {
	status int
	reason string
}

func (r refused) Error() string { return r.reason }

func badRequest(format string, args ...any) error {
	return refused{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var errBusy = refused{http.StatusServiceUnavailable, "busy: post it again"}

// ServeHTTP implements http.Handler.
func (o *Outbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, fresh, err := o.accept(w, r)
	var no refused
	switch {
	case err == nil && fresh:
		reply(w, http.StatusCreated, map[string]string{"id": id})
		return
	case err == nil:
		reply(w, http.StatusOK, map[string]string{"id": id})
		return
	case !errors.As(err, &no):
		o.cfg.Log.Error().Err(err).Str("message_id", id).Msg("POST /outbox: not written; the service is to post it again")
		no = refused{http.StatusServiceUnavailable, "the outbox cannot be written now: post it again"}
	}
	switch no.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "6")
	}
	reply(w, no.status, map[string]string{"error": no.reason})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", envelope.JSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

func (o *Outbox) accept(w http.ResponseWriter, r *http.Request) (id string, fresh bool, err error) {
	if r.Method != http.MethodPost {
		return "", false, refused{http.StatusMethodNotAllowed, "want POST"}
	}
	switch o.token.Check(r) {
	case door.NoToken, door.Right:
	case door.TooMany:
		return "", false, refused{http.StatusTooManyRequests, door.Explanation}
	default:
		return "", false, refused{http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN"}
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != envelope.JSON {
		return "", false, refused{http.StatusUnsupportedMediaType, "want Content-Type: application/json"}
	}
	select {
	case o.turns <- struct{}{}:
		defer func() { <-o.turns }()
	default:
		return "", false, errBusy
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostPost))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return "", false, refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d bytes", mostPost)}
	case err != nil:
		return "", false, badRequest("the body ended early")
	}
	p, err := read(body)
	if err != nil {
		return "", false, err
	}
	if len(o.cfg.Topics) > 0 && !slices.Contains(o.cfg.Topics, p.Topic) {
		return "", false, refused{http.StatusForbidden, fmt.Sprintf("topic %q: want one of %s", p.Topic, strings.Join(o.cfg.Topics, ", "))}
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeLimit)
	defer cancel()
	fresh, err = o.write(ctx, p)
	return p.ID, fresh, err
}

func read(body []byte) (posted, error) {
	var p posted
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, badRequest("the body is no such JSON: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return p, badRequest("bytes behind the JSON value")
	}
	id, err := uuid.Parse(p.ID)
	switch {
	case err != nil:
		return p, badRequest("id %q: want a UUID, made once for the message", short(p.ID))
	case p.Topic == "" || p.Type == "" || p.Payload == nil:
		return p, badRequest("want topic, type and payload")
	case !topicName.MatchString(p.Topic):
		return p, badRequest("topic %q: no topic of Kafka's has such a name", short(p.Topic))
	case ours(p.Type):
		return p, badRequest("type %q: types that begin with troupe. are Troupe's own", short(p.Type))
	}
	for name := range p.Headers {
		if ours(name) || isAttribute(name) {
			return p, badRequest("header %q: a service cannot set it", short(name))
		}
	}
	for name, text := range map[string]string{
		"key": p.Key, "type": p.Type, "correlation_id": p.CorrelationID, "causation_id": p.CausationID,
	} {
		if len(text) > maxAttribute || strings.Contains(text, "\x00") {
			return p, badRequest("%s: want at most %d bytes, and no zero byte", name, maxAttribute)
		}
	}
	p.ID = id.String()
	return p, nil
}

// ours reports whether a type or a header belongs to Troupe.
func ours(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(strings.ToLower(name), "__"), "troupe.")
}

// isAttribute reports whether a header is an attribute of the message that Troupe sets.
func isAttribute(name string) bool {
	return slices.Contains(setByUs, strings.ReplaceAll(strings.ToLower(name), "-", "_"))
}

var setByUs = []string{
	ce.HeaderSpecVersion, ce.HeaderID, ce.HeaderSource, ce.HeaderType, ce.HeaderSubject, ce.HeaderTime,
	"content_type", ce.HeaderCorrelationID, ce.HeaderCausationID,
	ce.HeaderSagaID, ce.HeaderSagaStep, ce.HeaderSagaOperation,
}

// write writes the message unless its id is stored, and reports whether it did.
func (o *Outbox) write(ctx context.Context, p posted) (fresh bool, err error) {
	canonical, err := json.Marshal(p) // the payload without white space, the headers in order
	if err != nil {
		return false, err
	}
	digest := sha256.Sum256(canonical)
	e := outbox.Entry{ID: p.ID, Topic: p.Topic, Key: p.Key, Type: p.Type, Payload: p.Payload, ContentType: envelope.JSON}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		e.Headers = append(e.Headers, envelope.Header{Key: name, Value: []byte(p.Headers[name])})
	}
	if p.CorrelationID != "" || p.CausationID != "" {
		m := envelope.Message{ID: p.CausationID, CorrelationID: p.CorrelationID}
		ctx = envelope.WithCause(ctx, &envelope.Cause{Message: m, At: time.Now()})
	}
	switch _, err := o.out.Row(ctx, e); {
	case errors.Is(err, outbox.ErrTooLarge):
		return false, refused{http.StatusRequestEntityTooLarge, err.Error()}
	case err != nil:
		return false, badRequest("%v", err)
	}
	err = pgx.BeginFunc(ctx, o.cfg.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO troupe.outbox_posts (id, digest) VALUES ($1, $2) ON CONFLICT DO NOTHING", p.ID, digest[:])
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 1 {
			fresh = true
			return o.out.Write(ctx, tx, e)
		}
		var before []byte
		if err := tx.QueryRow(ctx, "SELECT digest FROM troupe.outbox_posts WHERE id = $1", p.ID).Scan(&before); err != nil {
			return err
		}
		if !bytes.Equal(before, digest[:]) {
			return refused{http.StatusConflict, "another message came under id " + p.ID + ": an id is for one message"}
		}
		return nil
	})
	return fresh, err
}

// Forget deletes the ids of messages that were posted longer than age ago, and returns their number. A message that is posted
// again after that is written again.
func (o *Outbox) Forget(ctx context.Context, age time.Duration) (forgotten int64, err error) {
	for {
		tag, err := o.cfg.Pool.Exec(ctx, `
			DELETE FROM troupe.outbox_posts WHERE id IN (
			  SELECT id FROM troupe.outbox_posts WHERE at < clock_timestamp() - $1::interval ORDER BY at LIMIT $2)`, age, forgetAtOnce)
		forgotten += tag.RowsAffected()
		if err != nil || tag.RowsAffected() < forgetAtOnce {
			return forgotten, err
		}
	}
}
