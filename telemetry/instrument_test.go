package telemetry_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/topics"
)

// TestInstrumentKeepsTheHooksThatAreThere also checks that they are called first.
func TestInstrumentKeepsTheHooksThatAreThere(t *testing.T) {
	t.Parallel()
	tel, err := telemetry.New(telemetry.Config{})
	require.NoError(t, err)
	told := make(map[string]int)
	type key struct{}
	var own participant.Hooks
	own.Fetched = func(string, int32, int) { told["Fetched"]++ }
	own.AfterCommit = func(participant.Delivery) { told["AfterCommit"]++ }
	own.Failed = func(participant.Delivery) { told["Failed"]++ }
	own.Held = func(participant.Delivery) { told["Held"]++ }
	own.Passed = func(participant.Passed) { told["Passed"]++ }
	own.Breaker = func(participant.Breaker) { told["Breaker"]++ }
	own.Handler = func(ctx context.Context, _ participant.Delivery) (context.Context, func(participant.Delivery)) {
		return context.WithValue(ctx, key{}, 1), func(participant.Delivery) { told["Handler"]++ }
	}
	own.Transaction = func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
		return context.WithValue(ctx, key{}, 2), func(error) { told["Transaction"]++ }
	}
	own.BeforeCommit = func(participant.Delivery) { told["BeforeCommit"]++ }

	cfg := tel.Instrument(participant.Config{Hop: topics.MustHop("order", "payment"), Hooks: own})
	hooks := cfg.Hooks
	hooks.Fetched("t", 0, 1)
	hooks.AfterCommit(participant.Delivery{})
	hooks.Failed(participant.Delivery{})
	hooks.Held(participant.Delivery{})
	hooks.Passed(participant.Passed{})
	hooks.Breaker(participant.Breaker{})
	hooks.BeforeCommit(participant.Delivery{})
	ctx, handled := hooks.Handler(t.Context(), participant.Delivery{})
	require.Equal(t, 1, ctx.Value(key{}))
	handled(participant.Delivery{})
	ctx, ended := hooks.Transaction(t.Context(), make([]participant.Delivery, 2))
	require.Equal(t, 2, ctx.Value(key{}))
	ended(nil)
	for what, times := range told {
		require.Equal(t, 1, times, what)
	}
	require.Len(t, told, 9)
	require.NotNil(t, cfg.Trace)

	// Hooks that telemetry does not use stay nil, and so cost nothing.
	bare := reflect.ValueOf(tel.Instrument(participant.Config{Hop: topics.MustHop("order", "payment")}).Hooks)
	for _, name := range []string{"BeforeHandler", "BeforeCommit", "BeforeOffsets", "AfterOffsets"} {
		require.True(t, bare.FieldByName(name).IsNil(), name)
	}
}
