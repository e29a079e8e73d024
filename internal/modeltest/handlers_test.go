package modeltest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// The types of messages; ce_type is the type's name.
type (
	Act      body
	Loose    body
	Call     body
	Undo     body
	Happened body
	Reacted  body
	Told     struct{ N int }
	Answered struct{ N int }
	Refused  struct{ N int }
	Alarm    struct{ N int }
)

const (
	deadlineName = "alarm"
	headerN      = "model.n" // the number of the message
)

// schema creates the tables for the handlers' effects.
const schema = `
CREATE TABLE effects (
  position  bigint  GENERATED ALWAYS AS IDENTITY (CACHE 1),
  n         int     NOT NULL,
  grp       text    NOT NULL,
  kind      text    NOT NULL, -- done, refused, due
  redrive   int     NOT NULL,
  attempt   int     NOT NULL,
  leaked    text    NOT NULL,  -- a setting of another message's handler
  xid       xid8    NOT NULL DEFAULT pg_current_xact_id()
);
CREATE TABLE relayed (
  position  bigint  PRIMARY KEY,
  id        text    NOT NULL,
  topic     text    NOT NULL,
  key       bytea,
  type      text    NOT NULL,
  outcome   text    NOT NULL,
  cause     text    NOT NULL, -- ce_causationid
  saga_step text    NOT NULL,
  payload   bytea
);`

const insertEffect = `INSERT INTO effects (n, grp, kind, redrive, attempt, leaked)
VALUES ($1, $2, $3, $4, $5, coalesce(current_setting('model.setting', true), ''))`

var errScripted = errors.New("as scripted")

// hands has the handlers of one participant.
type hands struct {
	p     *participant.Participant
	group string
	audit bool
}

// register registers the handlers of the task's participant.
func (k task) register(p *participant.Participant, hop topics.Hop, ups [2]topics.Hop) {
	h := hands{p: p, group: p.Group()}
	var limits []participant.HandlerOption
	if k.Setup.Limited && !k.Local {
		limits = []participant.HandlerOption{participant.RateLimit(100, time.Second), participant.ConcurrencyLimit("the bank", 2)}
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Act]) (participant.Outcome, error) {
		return h.act(ctx, tx, c.Message, c.Attempt, body(c.Body))
	}, limits...)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Undo]) (participant.Outcome, error) {
		return h.act(ctx, tx, c.Message, c.Attempt, body(c.Body))
	})
	loose := slices.Clone(limits)
	if !k.Local {
		loose = append(loose, participant.RetryTopics(k.Delay))
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Loose]) (participant.Outcome, error) {
		return h.act(ctx, tx, c.Message, c.Attempt, body(c.Body))
	}, loose...)
	participant.OnDeadline(p, deadlineName, func(ctx context.Context, tx pgx.Tx, d participant.Due[Alarm]) error {
		_, err := tx.Exec(ctx, insertEffect, d.Body.N, h.group, "due", 0, d.Attempt)
		return err
	})
	if k.Older && k.Setup.All {
		participant.OnAll(p, ups[:1], h.takeAll)
		return
	}
	if k.Older {
		h.react(ups[0])
		h.listen(ups[0])
		return
	}
	participant.Call(p,
		func(ctx context.Context, c participant.Command[Call]) (body, error) {
			b := body(c.Body)
			if c.Attempt <= b.Fails {
				return b, errScripted
			}
			return b, nil
		},
		func(ctx context.Context, tx pgx.Tx, c participant.Command[Call], said body) (participant.Outcome, error) {
			return h.act(ctx, tx, c.Message, c.Attempt, said)
		}, limits...)
	if k.Setup.All {
		participant.OnAll(p, ups[:], h.takeAll)
		return
	}
	for _, up := range ups {
		h.react(up)
	}
	h.listen(ups[0])
}

// react registers the handler of events that answers.
func (h hands) react(up topics.Hop) {
	participant.React(h.p, up, func(ctx context.Context, tx pgx.Tx, e participant.Event[Reacted]) (participant.Outcome, error) {
		return h.act(ctx, tx, e.Message, e.Attempt, body(e.Body))
	})
}

// listen registers the handler of events that emits no answer.
func (h hands) listen(up topics.Hop) {
	participant.On(h.p, up, func(ctx context.Context, tx pgx.Tx, e participant.Event[Happened]) error {
		_, err := h.act(ctx, tx, e.Message, e.Attempt, body(e.Body))
		return err
	})
}

// takeAll handles events of all types. An error names its message, unless the message says otherwise.
func (h hands) takeAll(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
	for i, m := range ms {
		b := decode(m.Message.Payload)
		if _, err := h.act(m.Context(), tx, m.Message, m.Attempt, b); err != nil {
			if b.Do == doPlain {
				return err
			}
			return participant.At(i, err)
		}
	}
	return nil
}

// act follows the script b. It writes the effect first, so that every failure has something to roll back.
func (h hands) act(ctx context.Context, tx pgx.Tx, m envelope.Message, attempt int, b body) (participant.Outcome, error) {
	redrive := redriveOf(m)
	for _, x := range m.Extra {
		if x.Key == headerN { // a command that repeats another has its body
			n, err := strconv.Atoi(string(x.Value))
			must(err)
			b.N = n
		}
	}
	if h.audit && b.AuditFine {
		b = body{N: b.N, SlowMS: b.SlowMS, LimitMS: b.LimitMS, Queued: b.Queued}
	}
	kind, outcome := "done", participant.Succeed(Answered{b.N})
	if b.Do == doRefuse {
		kind, outcome = "refused", participant.Refuse(Refused{b.N})
	}
	args := []any{b.N, h.group, kind, redrive, attempt}
	var err error
	if b.Queued {
		err = participant.Queue(ctx, tx, insertEffect, args...)
	} else {
		_, err = tx.Exec(ctx, insertEffect, args...)
	}
	if err == nil && b.SlowMS > 0 {
		_, err = tx.Exec(ctx, "SELECT pg_sleep($1)", float64(b.SlowMS)/1000)
	}
	if err == nil && b.DueMS > 0 {
		err = h.p.Schedule(ctx, tx, participant.Deadline{
			Name: deadlineName, Scope: fmt.Sprint(b.N), After: time.Duration(b.DueMS) * time.Millisecond, Body: Alarm{b.N},
		})
	}
	if err == nil && b.Cancels > 0 {
		err = h.p.Cancel(ctx, tx, deadlineName, fmt.Sprint(b.Cancels))
	}
	if err == nil && b.Tells != "" {
		err = h.p.Outbox().Write(ctx, tx, outbox.Entry{Topic: h.p.Hop().Events(), Key: b.Tells, Body: Told{b.N}})
	}
	switch {
	case err != nil:
		return participant.Outcome{}, err
	case b.limited(m):
		return participant.Outcome{}, retry.RateLimited(errScripted, time.Duration(b.LimitMS)*time.Millisecond)
	case attempt <= b.Fails, b.Mended && redrive == 0:
		return participant.Outcome{}, errScripted
	}
	return h.does(ctx, tx, b, outcome)
}

// limited reports whether the rate limit of a script still applies to m. A message of the future, as a saga's after its answers were
// deleted, has none.
func (b body) limited(m envelope.Message) bool {
	age := time.Since(m.Time)
	return age >= 0 && age < time.Duration(b.LimitMS)*time.Millisecond
}

// does follows the part of a script that is not its effect or outcome.
func (h hands) does(ctx context.Context, tx pgx.Tx, b body, outcome participant.Outcome) (participant.Outcome, error) {
	var none participant.Outcome
	switch b.Do {
	case doPermanent:
		return none, retry.Permanent(errScripted)
	case doPlain:
		return none, errScripted
	case doPanic:
		panic("as scripted")
	case doNothing:
		return none, nil
	case doSwallow:
		quick, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, _ = tx.Exec(quick, "SELECT pg_sleep(1)")
		if !tx.Conn().IsClosed() {
			return none, errScripted // the time-out was over before the statement began
		}
	case doRows:
		if rows, err := tx.Query(ctx, "SELECT generate_series(1, 10)"); err == nil {
			rows.Next()
		}
	case doCommit:
		if _, err := tx.Exec(ctx, "COMMIT"); err != nil {
			return none, err
		}
		return none, errScripted
	case doLimit:
		_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'limit' USING ERRCODE = '53400'; END $$")
		return none, err
	case doGone:
		return none, &pgconn.PgError{Code: "57P01", Message: "of another database"}
	case doSet:
		_, err := tx.Exec(ctx, "SET LOCAL model.setting = 'leaked'")
		return outcome, err
	case doGoexit:
		runtime.Goexit()
	}
	return outcome, nil
}
