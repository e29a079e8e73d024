package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// Config of a Service. Participant and Declared are required.
type Config struct {
	// Participant is the service's own, not yet running. Its Run is the service's.
	Participant *participant.Participant
	// Declared is what the service says about itself. Its Hop is the participant's.
	Declared reactions.Service
	// Retention is how long joins and expectations are remembered after their end, so that what comes late or again does
	// not begin them anew. It must exceed the longest time after which a message can come: as a rule the participant's
	// InboxRetention. Default 7 days.
	Retention time.Duration
	// Log gets a line per decision and never a payload. The zero value discards them.
	Log zerolog.Logger
}

// A Service is one hop of a flow that nobody orchestrates. Register its parts with On, OnJoin and OnMissed, and its handlers
// of commands with participant.Handle, then call the participant's Run.
type Service struct {
	cfg   Config
	p     *participant.Participant
	moves atomic.Uint64 // of expectations: begun or met

	mu           sync.Mutex
	joins        map[string]*join
	expectations map[string]*expectation
	mistakes     []error
}

// New checks the configuration and the declaration, and binds the participant to it: from here on its Run fails where
// handlers and declaration differ, and its Outbox refuses what is not declared. It does no I/O.
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
	s.p.Obey(participant.Contract{Handlers: s.compare, Emits: s.mayEmit})
	return s, nil
}

// Participant is Config.Participant.
func (s *Service) Participant() *participant.Participant { return s.p }

// mistaken keeps an error for Run.
func (s *Service) mistaken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mistakes = append(s.mistakes, err)
}

// On makes fn what the service does about events of type T of another hop, be they successes or failures: its part of the
// flow, or the compensation of it. It returns what the service says in turn: participant.Succeed or Refuse with an event of
// its own, or participant.Done where it has written commands for others, or where nothing is declared. It is
// participant.React, held to the declaration: a run that ends without any of the messages which the reaction declares is
// an error.
//
// Mistakes are the error of the participant's Run. Call it before that.
func On[T any](s *Service, from topics.Hop, fn func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) (participant.Outcome, error), opts ...participant.HandlerOption) {
	participant.React(s.p, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) (participant.Outcome, error) {
		on := reactions.Message{Topic: e.Message.Topic, Type: e.Message.Type}
		declared := s.reaction(on)
		return s.diligent(ctx, "the reaction to "+name(on), declared.Success, declared.Failure, func(ctx context.Context) (participant.Outcome, error) {
			return fn(ctx, tx, e)
		})
	}, opts...)
}
