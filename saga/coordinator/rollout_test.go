package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// A rolling deployment: the new version reads fewer hops, and it started when no saga was under way. A process of the old
// version begins one more saga, and is stopped.
func TestTheNewVersionGoesOnWithSagasThatTheOldOneBeganLast(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	f.process(order(t))()
	spec := order(t).Spec()
	spec.Version, spec.Steps = 2, spec.Steps[:1]
	spec.Completed, spec.Compensated = nil, nil
	next, err := saga.Define(spec)
	require.NoError(t, err)
	f.coordinator(next)
	stop := f.process(order(t))
	id := f.start("o-1")
	stop()
	f.await(id, saga.Completed)
	require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
}
