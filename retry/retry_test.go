package retry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/retry"
)

func TestWaitsDoubleUpToTheCap(t *testing.T) {
	p := retry.Policy{Initial: time.Second, Cap: 5 * time.Second, Attempts: 6, NoJitter: true}
	var got []time.Duration
	for a := 1; a < 6; a++ {
		got = append(got, p.Wait(a))
	}
	require.Equal(t, []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}, got)
	require.Equal(t, 17*time.Second, p.Longest())
}

func TestJitterIsFull(t *testing.T) {
	p := retry.Policy{Initial: time.Second, Cap: time.Minute}
	low, high := time.Hour, time.Duration(0)
	for range 2000 {
		d := p.Wait(3)
		low, high = min(low, d), max(high, d)
	}
	require.Less(t, low, 400*time.Millisecond)
	require.Greater(t, high, 3600*time.Millisecond)
	require.LessOrEqual(t, high, 4*time.Second)
}

func TestALateAttemptDoesNotOverflow(t *testing.T) {
	p := retry.Policy{Initial: time.Hour, Cap: 1 << 62, NoJitter: true}
	require.Equal(t, time.Duration(1<<62), p.Wait(10_000))
}

func TestTheZeroPolicyIsTheDefault(t *testing.T) {
	require.Equal(t, retry.Default, retry.Policy{}.WithDefaults())
	require.False(t, retry.Policy{}.Exhausted(7))
	require.True(t, retry.Policy{}.Exhausted(8))
	require.Equal(t, 63500*time.Millisecond, retry.Policy{}.Longest())
	require.Equal(t, time.Hour, retry.Policy{Initial: time.Hour}.WithDefaults().Cap)
}

func TestPoliciesThatCannotBeMeantAreRefused(t *testing.T) {
	for _, p := range []retry.Policy{
		{Initial: -1}, {Cap: -1}, {Attempts: -1}, {Initial: time.Minute, Cap: time.Second},
	} {
		require.Error(t, p.Validate(), "%+v", p)
	}
	require.NoError(t, retry.Policy{}.Validate())
}

func TestPermanentSurvivesWrapping(t *testing.T) {
	cause := errors.New("no such customer")
	err := fmt.Errorf("charge: %w", retry.Permanent(cause))
	require.True(t, retry.IsPermanent(err))
	require.ErrorIs(t, err, cause)
	require.False(t, retry.IsPermanent(cause))
	require.NoError(t, retry.Permanent(nil))
}

func TestAWaitThatWasAskedForSurvivesWrapping(t *testing.T) {
	cause := errors.New("429 Too Many Requests")
	err := fmt.Errorf("charge: %w", retry.After(cause, 2*time.Minute))
	require.Equal(t, 2*time.Minute, retry.NotBefore(err))
	require.ErrorIs(t, err, cause)
	require.False(t, retry.IsPermanent(err))
	require.Zero(t, retry.NotBefore(cause))
	require.Zero(t, retry.NotBefore(nil))
	require.Zero(t, retry.NotBefore(retry.After(cause, -time.Second)))
	require.Equal(t, 24*time.Hour, retry.NotBefore(retry.After(cause, 1<<62)))
	require.NoError(t, retry.After(nil, time.Second))
}

func TestARateLimitSurvivesWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("429 Too Many Requests")
	err := fmt.Errorf("charge: %w", retry.RateLimited(cause, 2*time.Minute))
	require.True(t, retry.IsRateLimited(err))
	require.Equal(t, 2*time.Minute, retry.NotBefore(err))
	require.ErrorIs(t, err, cause)
	require.True(t, retry.IsRateLimited(retry.After(err, time.Hour)), "another wait")
	require.Equal(t, 24*time.Hour, retry.NotBefore(retry.RateLimited(cause, 1<<62)))
	require.False(t, retry.IsRateLimited(retry.After(cause, time.Hour)))
	require.NoError(t, retry.RateLimited(nil, time.Second))
}

func TestAnAbsentDependencyIsNamedThroughWrapping(t *testing.T) {
	cause := errors.New("connection refused")
	err := fmt.Errorf("charge: %w", retry.Unavailable("the bank", cause))
	dependency, yes := retry.IsUnavailable(err)
	require.True(t, yes)
	require.Equal(t, "the bank", dependency)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "charge: connection refused")
	require.NoError(t, retry.Unavailable("the bank", nil))
	dependency, yes = retry.IsUnavailable(retry.Permanent(cause))
	require.False(t, yes)
	require.Empty(t, dependency)
}

// A bank that every message of the handler needs.
func ExampleUnavailable() {
	charge := func(dial error) error {
		if dial != nil {
			return retry.Unavailable("the bank", dial)
		}
		return nil
	}
	dependency, yes := retry.IsUnavailable(charge(errors.New("connection refused")))
	fmt.Println(dependency, yes)
	// Output:
	// the bank true
}

func ExamplePolicy_Wait() {
	p := retry.Policy{Initial: time.Second, Cap: 4 * time.Second, Attempts: 5, NoJitter: true}
	for failed := 1; !p.Exhausted(failed); failed++ {
		fmt.Println(p.Wait(failed))
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 4s
}
