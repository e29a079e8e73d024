package relay_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
)

func TestOptionsThatTurnOffIdempotentWritesAreRefused(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1:1/shop")
	require.NoError(t, err)
	defer pool.Close()
	cfg := relay.Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Kafka: []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}}
	_, err = relay.New(cfg)
	require.NoError(t, err)
	cfg.Kafka = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())}
	_, err = relay.New(cfg)
	require.ErrorContains(t, err, "Config.Kafka disables idempotent writes")
}

func TestAReplayRefusesOptionsThatTurnOffIdempotentWrites(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	s.published()
	cfg := s.config()
	cfg.Kafka = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())}
	p, err := relay.Replay{From: 1}.Run(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "Config.Kafka disables idempotent writes")
	require.Zero(t, p.Published)
}
