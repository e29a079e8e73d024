package ambassador

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// A Route says where the commands of a type are posted, and what follows. Type and Path are required.
type Route struct {
	Type string // ce_type of the commands
	Path string // as in Call
	// Success and Failure are ce_type of the events that answer. Default: Type with Done or Refused behind it.
	Success, Failure string
	// Next is a command for the hop whose turn it is when the service has done this one; nil: none.
	Next *Next
}

// Next is a command with the body of the success event and the key of the command that it follows from. Both are required.
type Next struct {
	Topic string // of the next hop's commands
	Type  string
}

// Post makes a the handler of commands on p's hop, of the types of the routes: each is posted to its path, and the answer is
// made of what the service says:
//
//	Done     success event: what the service said, and {} where that was nothing
//	Refused  failure event: the JSON object that the service sent, and where it was none {"status": …, "reason": …}
//
// Where the command's payload is Avro, the service gets it as JSON (with Config.Schemas), and what follows from it is Avro
// again, by the latest schema of its type. All other payloads go as they are, and what follows is JSON.
//
// p needs Codec. Up to its Concurrency times its Batch requests are under way: those of a batch go at once, those of a key
// one after the other. Call it before p.Run; mistakes are errors here and of Run.
func (a *Ambassador) Post(p *participant.Participant, routes ...Route) error {
	for _, r := range routes {
		if err := r.Check(); err != nil {
			return fmt.Errorf("ambassador: %w", err)
		}
		if r.Success == "" {
			r.Success = r.Type + "Done"
		}
		if r.Failure == "" {
			r.Failure = r.Type + "Refused"
		}
		participant.Ask(p, r.Type,
			func(ctx context.Context, c participant.Command[[]byte]) (answer, error) {
				return a.post(ctx, r, c.Message)
			},
			func(ctx context.Context, tx pgx.Tx, c participant.Command[[]byte], said answer) (participant.Outcome, error) {
				return a.follow(ctx, tx, p.Outbox(), following{r, c.Message, said})
			})
	}
	return nil
}

// Check says what is wrong with a route.
func (r Route) Check() error {
	switch {
	case r.Type == "":
		return errors.New("route without a type")
	case r.Next != nil && (r.Next.Topic == "" || r.Next.Type == ""):
		return fmt.Errorf("route of %s: next: want a topic and a type", r.Type)
	}
	if err := checkPath(r.Path); err != nil {
		return fmt.Errorf("route of %s: %w", r.Type, err)
	}
	return nil
}

// post asks the service. An error says that it has given no answer.
func (a *Ambassador) post(ctx context.Context, route Route, m envelope.Message) (answer, error) {
	r := request{method: http.MethodPost, path: route.Path, body: m.Payload, contentType: m.ContentType, sign: a.cfg.Sign}
	if m.ContentType == envelope.Avro {
		if a.cfg.Schemas == nil {
			return answer{}, retry.Permanent(fmt.Errorf("%s: the payload is Avro: a schema registry must be set", r))
		}
		var err error
		if _, r.body, err = a.cfg.Schemas.ToJSON(ctx, m.Payload); err != nil {
			return answer{}, fmt.Errorf("%s: %w", r, err)
		}
		r.contentType = envelope.JSON
	}
	if a.cfg.Mode == CloudEvents {
		r.attributes = attributes(m)
	}
	got, err := a.ask(ctx, r, m)
	if err != nil {
		return answer{}, err
	}
	switch v := a.meaning(got.status); {
	case v == Done && got.cut:
		return answer{}, a.tooLarge(r, got)
	case v == Done, v == Refused:
		got.header = nil // it may be large, and is kept until the commit
		return got, nil
	case v == Again:
		return answer{}, retry.After(fmt.Errorf("%s: %s", r, got.text()), got.wait(time.Now()))
	}
	return answer{}, a.trouble(r, got)
}

func (a *Ambassador) meaning(status int) Verdict {
	if a.cfg.Retry400 && status == http.StatusBadRequest {
		return Again
	}
	return Meaning(status)
}

// following is a command with what the service said to it.
type following struct {
	Route
	command envelope.Message
	said    answer
}

// follow makes the outcome, and writes what comes next.
func (a *Ambassador) follow(ctx context.Context, tx pgx.Tx, out *outbox.Outbox, f following) (participant.Outcome, error) {
	if a.meaning(f.said.status) == Refused {
		e, err := a.event(ctx, f, f.Failure, f.said.refusal())
		return participant.Refuse(e), err
	}
	body := f.said.asJSON()
	if body == nil {
		body = json.RawMessage("{}")
	}
	e, err := a.event(ctx, f, f.Success, body)
	if err != nil || f.Next == nil {
		return participant.Succeed(e), err
	}
	next, err := a.event(ctx, f, f.Next.Type, body)
	if err != nil {
		return participant.Outcome{}, err
	}
	entry := outbox.Entry{
		Topic: f.Next.Topic, KeyBytes: f.command.Key, Type: next.typ, Payload: next.payload, ContentType: next.contentType,
	}
	return participant.Succeed(e), out.Write(ctx, tx, entry)
}

// event is a body in the form that its command had.
func (a *Ambassador) event(ctx context.Context, f following, typ string, body json.RawMessage) (event, error) {
	e := event{typ: typ, payload: body, contentType: envelope.JSON}
	if f.command.ContentType != envelope.Avro {
		return e, nil
	}
	var err error
	e.contentType = envelope.Avro
	if e.payload, err = a.cfg.Schemas.FromJSON(ctx, typ, body); err != nil {
		err = fmt.Errorf("the service said %s, and has done its part: as %s: %w", f.said.text(), typ, err)
		if errors.Is(err, envelope.ErrPayload) {
			err = retry.Permanent(err)
		}
	}
	return e, err
}

// event is a body that is rendered already.
type event struct {
	typ, contentType string
	payload          []byte
}

// Codec is the participant's where Post is used: it leaves what the ambassador has rendered as it is. All else is JSON.
type Codec struct{ envelope.JSONCodec }

// Encode is the participant's.
func (c Codec) Encode(topic string, body any) (envelope.Encoded, error) {
	if e, ok := body.(event); ok {
		return envelope.Encoded{Payload: e.payload, Type: e.typ, ContentType: e.contentType}, nil
	}
	return c.JSONCodec.Encode(topic, body)
}

// MarshalJSON refuses to be rendered by another codec.
func (event) MarshalJSON() ([]byte, error) {
	return nil, errors.New("participant.Config.Codec must be ambassador.Codec")
}
