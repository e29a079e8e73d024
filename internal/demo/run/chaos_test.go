package run

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeckDealsEverybodyBeforeAnybodyAgain(t *testing.T) {
	d := deck[string]{random: rand.New(rand.NewPCG(1, 1)), all: services}
	for range 20 {
		seen := make(map[string]bool)
		for range services {
			seen[d.deal()] = true
		}
		require.Len(t, seen, len(services))
	}
}

func TestChaosSlowsPostingDownToHaveTime(t *testing.T) {
	cfg := Config{Orders: someOrders(10)}
	require.Zero(t, cfg.pace())
	cfg.Chaos = true
	require.Equal(t, chaosLeast/10, cfg.pace())
	cfg.Rate = 0.5
	require.EqualValues(t, 2e9, cfg.pace())
	cfg.Rate = 1e6
	require.Equal(t, chaosLeast/10, cfg.pace())
}
