package participant_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestAnObserverThatFailsAtATakeOverIsCalledAgain checks an event whose observers ran when it was written, and run again since a member takes its
// partition over: a failed run is tried again, and its dead letter can be redriven.
func TestAnObserverThatFailsAtATakeOverIsCalledAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"held": errAsked, "redriven": retry.Permanent(errAsked)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			e := s.event("a", Count{N: 1})
			e.Extra = []envelope.Header{{Key: ce.HeaderObserved, Value: []byte(s.hop.String() + "/shipped")}}
			s.send(e)
			var calls atomic.Int32
			p := s.new(onePartition)
			p.Extension().ObserveSelf(extension.SelfObserver{
				Name: "shipped", Type: e.Type,
				OnWrite: func(context.Context, *pgx.Batch, envelope.Message) error { return nil },
				OnConsume: func(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
					if calls.Add(1) == 1 {
						return fails
					}
					_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, 1, 1)", string(m.Key))
					return err
				},
			})
			participant.Handle(p, count)
			s.start(p)
			if name == "redriven" {
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
				desk, err := repair.New(repair.Config{Pool: s.pool})
				require.NoError(t, err)
				_, err = desk.Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: admin.Actor{Name: "test"}})
				require.NoError(t, err)
				s.publish(s.hop.Events(), 1)
			}
			s.waitCount(1, "SELECT count(*) FROM done")
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
		})
	}
}
