package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg/silenttest"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

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
			var server silenttest.Server
			pool := server.Pool(t, f.pool)
			p := f.participant("order", f.pool)
			c, err := coordinator.New(t.Context(), coordinator.Config{
				Participant: p, Pool: pool, Definitions: []*saga.Definition{fewer(t)}, Log: testkit.Logger(t),
			})
			require.NoError(t, err)
			c.LearnLimit(2 * time.Second)
			server.At(text)
			f.goOn(p)
			testkit.Wait(t, "the server to fall silent", func() (bool, error) { return server.Fell() == 1, nil })
			stop := f.process(other)
			id := f.start("o-1")
			stop()
			f.completes(id)
		})
	}
}
