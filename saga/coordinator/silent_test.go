package coordinator_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// silent is a connection whose server answers nothing more after the first statement with a text, and that stays open.
type silent struct {
	net.Conn
	text     []byte
	began    *atomic.Bool // by one of the pool's connections
	silenced atomic.Bool
}

func (c *silent) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.text) && c.began.CompareAndSwap(false, true) {
		c.silenced.Store(true)
	}
	if c.silenced.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// silentAt returns a pool of which one connection falls silent at text, and whether one has.
func (f *flow) silentAt(text string) (*pgxpool.Pool, *atomic.Bool) {
	f.t.Helper()
	var began atomic.Bool
	cfg := f.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, kind, address string) (net.Conn, error) {
		conn, err := dial(ctx, kind, address)
		return &silent{Conn: conn, text: []byte(text), began: &began}, err
	}
	pool, err := pgxpool.NewWithConfig(f.t.Context(), cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(pool.Close)
	return pool, &began
}

// TestADefinitionIsLearntAfterAServerFellSilent lets the server fall silent while a coordinator looks for definitions. Another process then
// stores a definition with another hop, begins a saga and ends.
func TestADefinitionIsLearntAfterAServerFellSilent(t *testing.T) {
	t.Parallel()
	spec := order(t).Spec()
	spec.Version, spec.Steps = 3, spec.Steps[1:2] // inventory, whose events the coordinator does not consume
	spec.Steps[0].Needs, spec.Completed, spec.Compensated = nil, nil, nil
	other, err := saga.Define(spec)
	require.NoError(t, err)
	for name, text := range map[string]string{"at its own definitions": "AS mine (hash)", "at the others": "Finds the definitions that a process does not know"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHops(t, true)
			pool, fell := f.silentAt(text)
			p := f.participant("order", f.pool)
			c, err := coordinator.New(t.Context(), coordinator.Config{
				Participant: p, Pool: pool, Definitions: []*saga.Definition{fewer(t)}, Log: testkit.Logger(t),
			})
			require.NoError(t, err)
			c.LearnLimit(2 * time.Second)
			f.goOn(p)
			testkit.Wait(t, "the server to fall silent", func() (bool, error) { return fell.Load(), nil })
			stop := f.process(other)
			id := f.start("o-1")
			stop()
			f.completes(id)
		})
	}
}
