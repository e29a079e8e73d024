package retryheader_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retryheader"
	"github.com/troupe-go/troupe/retry"
)

func TestAHeaderIsParsedAsItWasWritten(t *testing.T) {
	t.Parallel()
	own := retry.Policy{Initial: time.Second, Cap: 2 * time.Second, Attempts: 7}
	for text, c := range map[string]struct {
		policy retry.Policy
		try    time.Duration
	}{
		"attempts=3;initial=500ms;cap=10s;try=10s":           {retry.Policy{Initial: 500 * time.Millisecond, Cap: 10 * time.Second, Attempts: 3}, 10 * time.Second},
		"attempts=1000;initial=1ns;cap=24h0m0s":              {retry.Policy{Initial: 1, Cap: 24 * time.Hour, Attempts: 1000}, 0},
		"attempts=8;initial=500ms;cap=1m0s;jitter=no":        {retry.Policy{NoJitter: true}, 0},
		"attempts=1;initial=24h0m0s;cap=24h0m0s;try=20m0.5s": {retry.Policy{Initial: 24 * time.Hour, Attempts: 1}, 20*time.Minute + 500*time.Millisecond},
	} {
		h, err := retryheader.Override{Policy: c.policy, Try: c.try}.Header()
		require.NoError(t, err)
		if strings.HasPrefix(text, "attempts=3") {
			require.Equal(t, text, string(h.Value))
		}
		for _, text := range []string{text, string(h.Value)} {
			o, err := retryheader.Parse(text, own)
			require.NoError(t, err, text)
			require.Equal(t, retryheader.Override{Policy: c.policy.WithDefaults(), Try: c.try}, *o, text)
		}
	}
	for text, want := range map[string]retry.Policy{
		"attempts=2":  {Initial: time.Second, Cap: 2 * time.Second, Attempts: 2},
		"initial=10s": {Initial: 10 * time.Second, Cap: 10 * time.Second, Attempts: 7},
		"cap=1ms":     {Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 7},
	} {
		o, err := retryheader.Parse(text, own)
		require.NoError(t, err, text)
		require.Equal(t, want, o.Policy, text)
	}
	for _, junk := range []string{
		"", ";", "attempts", "attempts=", "attempts=0", "attempts=-1", "attempts=1001", "attempts=3;attempts=4", "attempts=99999999999999999999",
		"attempts=3;", "attempts=3 ", "ATTEMPTS=3", "tries=3", "initial=0s", "initial=-1s", "initial=5", "cap=24h1ns", "cap=1s;initial=2s",
		"try=0s", "try=-1s", "try=soon", "jitter=yes", "attempts=3;\x00", strings.Repeat("attempts=3;", 1000),
	} {
		_, err := retryheader.Parse(junk, own)
		require.Error(t, err, junk)
	}
	for _, p := range []retry.Policy{{Attempts: 1001}, {Attempts: -1}, {Initial: -1}, {Cap: 25 * time.Hour}, {Initial: time.Hour, Cap: time.Minute}} {
		_, err := retryheader.Override{Policy: p}.Header()
		require.ErrorContains(t, err, "__troupe.retry: ", "%+v", p)
	}
	_, err := retryheader.Override{Try: -1}.Header()
	require.ErrorContains(t, err, "negative")
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"attempts=3;initial=500ms;cap=10s;try=10s", "jitter=no", "cap=1ns;initial=1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := retryheader.Parse(text, retry.Default)
		if err != nil {
			return
		}
		require.True(t, o.Attempts >= 1 && o.Attempts <= 1000 && o.Initial > 0 && o.Cap <= 24*time.Hour && o.Try >= 0, text)
		h, err := o.Header()
		require.NoError(t, err, text)
		again, err := retryheader.Parse(string(h.Value), retry.Policy{Attempts: 1, Initial: 1, Cap: 1})
		require.NoError(t, err)
		require.Equal(t, o, again)
	})
}
