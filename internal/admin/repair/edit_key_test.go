package repair_test

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestAnEditedMessageIsAnotherRequest redrives a message unchanged, edited, unchanged after the edit, edited again, and edited with
// its key: the handler gives the idempotency key to a service outside, which would repeat its answer to a known one.
func TestAnEditedMessageIsAnotherRequest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	type call struct {
		key   string
		cents int
	}
	calls := make(chan call, 20)
	p, err := participant.New(s.config())
	require.NoError(t, err)
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		calls <- call{c.Message.IdempotencyKey, c.Body.Cents}
		if c.Body.Cents < 100 {
			return participant.Outcome{}, retry.Permanent(errors.New("too little"))
		}
		return participant.Succeed(Charged{N: c.Body.N}), nil
	})
	s.run(p.Run)
	s.relay()
	sent := s.command("a", Charge{N: 1, Cents: -5})
	sent.IdempotencyKey = "order/o-1/charge/forward/1"
	s.send(sent)
	redrive := func(cfg repair.RedriveConfig, text string) call {
		s.waitCount(1, openLetters)
		if text != "" {
			require.NoError(t, s.desk.Edit(t.Context(), s.letters()[0].ID, []byte(text), ann))
		}
		cfg.By, cfg.Rate = ann, -1
		r, err := s.desk.Redrive(t.Context(), repair.Filter{}, cfg)
		require.NoError(t, err)
		require.Equal(t, 1, r.Redriven, r.Refusals)
		return <-calls
	}
	first := <-calls
	require.Equal(t, sent.IdempotencyKey, first.key)
	require.Equal(t, first, redrive(repair.RedriveConfig{}, ""), "the same request")
	require.Equal(t, first, redrive(repair.RedriveConfig{}, string(sent.Payload)), "the edit changed nothing")

	edited := redrive(repair.RedriveConfig{}, `{"n":1,"cents":7}`)
	require.Equal(t, 7, edited.cents)
	require.Regexp(t, "^"+regexp.QuoteMeta(sent.IdempotencyKey)+"/[0-9a-f]{16}$", edited.key)
	require.Equal(t, edited, redrive(repair.RedriveConfig{}, ""), "the same request as before")
	kept := redrive(repair.RedriveConfig{SameKey: true}, `{"n":1,"cents":8}`)
	require.Equal(t, call{edited.key, 8}, kept)
	again := redrive(repair.RedriveConfig{}, `{"n":1,"cents":900}`)
	require.NotContains(t, []string{sent.IdempotencyKey, edited.key}, again.key)

	for _, m := range s.read(s.hop.Events(), 7) {
		require.Equal(t, sent.IdempotencyKey, m.IdempotencyKey, "the sender gets an answer to its own command")
		if m.Outcome == envelope.Success {
			return
		}
	}
	require.Fail(t, "no success")
}
