package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// A service has a participant for each hop. The participant of the hop pickup is the coordinator's.
type service struct {
	pool         *pgxpool.Pool
	participants []*participant.Participant
	sagas        *coordinator.Coordinator
}

func newService(ctx context.Context, cfg participant.Config, codec *schemas.Codec) (*service, error) {
	cfg.Codec = codec
	s := &service{pool: cfg.Pool}
	for _, hop := range []topics.Hop{loan, locker, pickup} {
		cfg.Hop = hop
		p, err := participant.New(cfg)
		if err != nil {
			return nil, err
		}
		s.participants = append(s.participants, p)
	}
	lends(s.participants[0])
	sqltx.Handle(s.participants[1], assign)
	d, err := definition(codec)
	if err != nil {
		return nil, err
	}
	s.sagas, err = coordinator.New(ctx, coordinator.Config{
		Participant: s.participants[2], Pool: cfg.Pool, Definitions: []*saga.Definition{d}, Schemas: codec, Log: cfg.Log,
	})
	return s, err
}

// lends registers the handlers of the hop loan. It is called by newService and by the tests.
func lends(p *participant.Participant) {
	sqltx.Handle(p, lend)
	sqltx.Handle(p, takeBack)
}

// run handles messages until ctx ends, and then finishes the work in progress. A coordinator runs as its participant does.
func (s *service) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range s.participants {
		g.Go(func() error { return p.Run(ctx) })
	}
	return g.Wait()
}

// start begins a saga. Rows of the service's own would be written in the same transaction, with sqltx.With.
func (s *service) start(ctx context.Context, loanID, reader, isbn, branch string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := s.sagas.Start(ctx, tx, "pickup", map[string]any{"loan_id": loanID, "reader": reader, "isbn": isbn, "branch": branch})
		return err
	})
}
