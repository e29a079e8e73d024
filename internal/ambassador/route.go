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
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// A Route defines where the commands of a type are posted, and which messages follow. Type and Path are required. The route of the
// type of Call has the type only: a Call names its request and its answers.
type Route struct {
	Type string // ce_type of the commands
	Path string // as in Call
	// Success and Failure are the ce_type of the events that answer. Default: Type with Done or Refused appended.
	Success, Failure string
	// Next is a command that is sent when the service has executed this one; nil: none.
	Next *Next
}

// Next is a command with the body of the success event and the key of the command that it follows from. Both fields are
// required.
type Next struct {
	Topic string // of the next hop's commands
	Type  string
}

// Post registers a as the handler of commands on p's hop, of the types of the routes. Each command is posted to its route's
// path, and the answer is made of the response:
//
//	Done     success event: the response's body, as in CallDone, or {} if it is empty
//	Refused  failure event: the response's body if it is a JSON object, otherwise {"status": …, "reason": …}
//
// If the command's payload has a schema of the registry, the service gets it as JSON (with Config.Schemas), and the messages that
// follow are encoded by the latest schema of their type. All other payloads are posted unchanged, and the messages that follow are JSON.
//
// p needs Codec. At most its Concurrency times its Batch requests are under way: the requests of a batch are concurrent,
// except that a key's run one after the other. Call Post before p.Run. Post returns an error for an invalid route; Run
// returns the other errors of the registration.
func (a *Ambassador) Post(p *participant.Participant, routes ...Route) error {
	for _, r := range routes {
		if err := r.Check(); err != nil {
			return fmt.Errorf("ambassador: %w", err)
		}
		if r.Type == callType {
			a.Handle(p)
			continue
		}
		if r.Success == "" {
			r.Success = r.Type + "Done"
		}
		if r.Failure == "" {
			r.Failure = r.Type + "Refused"
		}
		p.Extension().Call(r.Type, extension.Call{
			Call: func(ctx context.Context, m envelope.Message, _ int) (any, error) { return a.post(ctx, r, m) },
			Decide: func(ctx context.Context, tx pgx.Tx, m envelope.Message, response any) (any, error) {
				return a.follow(ctx, tx, p.Outbox(), following{r, m, response.(answer)})
			},
		})
	}
	return nil
}

// Check returns an error if a route is invalid.
func (r Route) Check() error {
	switch {
	case r.Type == "":
		return errors.New("route without a type")
	case r.Type == callType && r != (Route{Type: callType}):
		return fmt.Errorf("route of %s: want the type only: the steps of a saga name the requests and the answers", r.Type)
	case r.Type == callType:
		return nil
	case r.Next != nil && (r.Next.Topic == "" || r.Next.Type == ""):
		return fmt.Errorf("route of %s: next: want a topic and a type", r.Type)
	}
	if err := checkPath(r.Path); err != nil {
		return fmt.Errorf("route of %s: %w", r.Type, err)
	}
	return nil
}

// post posts a command to the service. It returns an error if the response is not an answer.
func (a *Ambassador) post(ctx context.Context, route Route, m envelope.Message) (answer, error) {
	r := request{method: http.MethodPost, path: route.Path, body: m.Payload, contentType: m.ContentType, sign: a.cfg.Sign}
	if envelope.HasSchemaID(m.ContentType) {
		if a.cfg.Schemas == nil {
			return answer{}, retry.Permanent(fmt.Errorf("%s: the payload is %s: a schema registry must be set", r, m.ContentType))
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
		got.header = nil // it may be large, and the answer is kept until the commit
		return got, nil
	case v == Again:
		return answer{}, retry.After(fmt.Errorf("%s: %s", r, got.text()), got.wait(time.Now()))
	}
	return answer{}, a.noOutcome(r, got)
}

func (a *Ambassador) meaning(status int) Verdict {
	if a.cfg.Retry400 && status == http.StatusBadRequest {
		return Again
	}
	return Meaning(status)
}

// following is a command with the service's response to it.
type following struct {
	Route
	command envelope.Message
	said    answer
}

// follow returns the outcome, and writes the next command.
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

// event returns an event with a body in the content type of the command.
func (a *Ambassador) event(ctx context.Context, f following, typ string, body json.RawMessage) (event, error) {
	e := event{typ: typ, payload: body, contentType: envelope.JSON}
	if !envelope.HasSchemaID(f.command.ContentType) {
		return e, nil
	}
	encoded, err := a.cfg.Schemas.FromJSON(ctx, typ, body)
	e.payload, e.contentType = encoded.Payload, encoded.ContentType
	if err != nil {
		err = fmt.Errorf("the service said %s, and has done its part: as %s: %w", f.said.text(), typ, err)
		if errors.Is(err, envelope.ErrPayload) {
			err = retry.Permanent(err)
		}
	}
	return e, err
}

// event is an event whose payload is encoded already.
type event struct {
	typ, contentType string
	payload          []byte
}

// Codec is the participant's codec if Post is used: it does not change events that the ambassador has encoded. It encodes all
// other bodies as JSON.
type Codec struct{ envelope.JSONCodec }

// Encode implements the participant's codec.
func (c Codec) Encode(topic string, body any) (envelope.Encoded, error) {
	if e, ok := body.(event); ok {
		return envelope.Encoded{Payload: e.payload, Type: e.typ, ContentType: e.contentType}, nil
	}
	return c.JSONCodec.Encode(topic, body)
}

// MarshalJSON returns an error, so that no other codec encodes an event.
func (event) MarshalJSON() ([]byte, error) {
	return nil, errors.New("participant.Config.Codec must be ambassador.Codec")
}
