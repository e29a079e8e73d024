package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// TestATimeoutThatPostgresCannotTakeIsRefused checks the limit of idle_in_transaction_session_timeout: 2,147,483,647 ms.
func TestATimeoutThatPostgresCannotTakeIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := participant.Config{Pool: s.pool, Brokers: s.brokers, Hop: topics.MustHop(s.hop.Flow(), "payment"), Timeout: 24 * 24 * time.Hour}
	_, err := participant.New(cfg)
	require.NoError(t, err)
	cfg.Timeout += time.Hour
	_, err = participant.New(cfg)
	require.ErrorContains(t, err, "timeout 577h0m0s: want at most 576h0m0s")
}
