package flow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// Config configures a Service. Participant and Declared are required.
type Config struct {
	// Participant is the participant of this service, not yet running. Run it to run the service.
	Participant *participant.Participant
	// Declared is the service's declaration. Its Hop must be the participant's.
	Declared Declaration
	// Retention sets how long the rows of joins and expectations are kept after their end, so that late and repeated messages do
	// not begin them again. It must exceed the longest time after which a message can arrive, usually the participant's
	// InboxRetention. Default: 7 days.
	Retention time.Duration
	// AlertURL is the webhook, http or https, to which the members post alerts of expectations: that an expected event is
	// missing, and that it came late. The URL is a secret. Empty: missing events are only stored and logged. The package
	// comment describes the body.
	AlertURL string
	// AlertHeader is added to the requests, for example with a token.
	AlertHeader http.Header
	// Log gets one line per decision, never a payload. The zero value discards them.
	Log zerolog.Logger
}

// A Service is one hop of a flow without an orchestrator. Register its reactions, joins and expectations with On, OnJoin and
// OnMissed, and its handlers of commands with participant.Handle, then call the participant's Run.
type Service struct {
	cfg   Config
	p     *participant.Participant
	moves atomic.Uint64 // counts expectations that began or were met

	mu           sync.Mutex
	joins        map[string]*join
	expectations map[string]*expectation
	mistakes     []error
}

// New checks the configuration and the declaration, and installs the checks in the participant: from now on its Run fails if
// handlers and declaration differ, and its Outbox refuses messages that are not declared. It does no I/O.
func New(cfg Config) (*Service, error) {
	if cfg.Participant == nil {
		return nil, errors.New("flow: config without a participant")
	}
	switch hop := cfg.Participant.Hop().String(); {
	case cfg.Declared.Hop != hop:
		return nil, fmt.Errorf("flow: the declaration is of hop %q, the participant of %q", cfg.Declared.Hop, hop)
	case cfg.Retention < 0:
		return nil, fmt.Errorf("flow: retention %s is negative", cfg.Retention)
	case cfg.Retention == 0:
		cfg.Retention = 7 * 24 * time.Hour
	}
	s := &Service{
		cfg: cfg, p: cfg.Participant, joins: make(map[string]*join), expectations: make(map[string]*expectation),
	}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("flow: %s: %w", cfg.Declared.Hop, err)
	}
	if err := s.alertConfig().Validate(); err != nil {
		return nil, fmt.Errorf("flow: %w", err)
	}
	s.p.Extension().Obey(extension.Contract{Handlers: s.compare, Emits: s.mayEmit})
	if len(s.expectations) > 0 {
		s.watchExpectations()
	}
	return s, nil
}

// Participant returns Config.Participant.
func (s *Service) Participant() *participant.Participant { return s.p }

// withStableIDs derives the ids of the messages that follow from the end of a join or an expectation from the messages that
// arrived, and not from the message that is handled last. After the database was set back, messages may arrive in another
// order, and a deadline at another time.
func (s *Service) withStableIDs(ctx context.Context, kind, of, key string, arrived []envelope.Message) context.Context {
	cause := envelope.CauseOf(ctx)
	if cause == nil {
		return ctx
	}
	name := []string{s.p.Group(), kind, of, key}
	for _, m := range arrived {
		if m.ID == "" {
			return ctx
		}
		name = append(name, m.Topic, m.Type, m.Identity())
	}
	return envelope.WithCause(ctx, &envelope.Cause{
		Message: cause.Message, Handler: cause.Handler, Redrive: cause.Redrive, At: cause.At, Name: fmt.Sprintf("%q", name),
	})
}

// mistaken stores an error that Run returns.
func (s *Service) mistaken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mistakes = append(s.mistakes, err)
}

// On registers fn as the reaction to events of type T of another hop, successes and failures alike: a step of the flow, or its
// compensation. fn returns the service's answer: participant.Succeed or Refuse with an event of its own, or participant.Done if
// it has written commands for others, or if nothing is declared. On works as participant.React does, and also checks the
// declaration: a run that writes none of the messages that the reaction declares is an error.
//
// Call On before the participant's Run, which returns its errors.
func On[T any](s *Service, from topics.Hop, fn func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) (participant.Outcome, error), opts ...participant.HandlerOption) {
	participant.React(s.p, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) (participant.Outcome, error) {
		on := Message{Topic: e.Message.Topic, Type: e.Message.Type}
		declared := s.reaction(on)
		return s.diligent(ctx, "the reaction to "+name(on), declared.Success, declared.Failure, func(ctx context.Context) (participant.Outcome, error) {
			return fn(ctx, tx, e)
		})
	}, opts...)
}
