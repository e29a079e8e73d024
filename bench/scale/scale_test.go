package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

// words returns the words of each line, separated by single blanks.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// The costs must be the figures of docs/benchmarks.md: new measurements need new tables.
func TestTheCostsAreThoseOfTheBenchmarks(t *testing.T) {
	t.Parallel()
	c, text := batched, strings.Join(words(page(t, "benchmarks.md")), "\n")
	for what, line := range map[string]string{
		"go run -C bench ./relay --only drain":          fmt.Sprintf("\nmedian wal, socket %.0f 0.44 3.06 %.2f %.2f %.2f ", c.relayRate, c.relay, c.relayPG, c.broker),
		"go run -C bench ./participant --only batched":  fmt.Sprintf("\nmedian participant, queued %.0f 98.0 %.1f %.1f ", c.consumerRate, c.participant, c.participantPG),
		"go run -C bench ./relay --only writers":        fmt.Sprintf("\nnobody, Troupe's table %.0f\n", c.commitRate),
		"go run -C bench ./relay --only writers, again": fmt.Sprintf("\n%.0f writers, one row in a transaction", c.writers),
		"go run -C bench ./saga --only kafka":           "\nmedian kafka, flat out 1334.4 47.6 61.3 68.6 0.61 0.66\n",
	} {
		require.Contains(t, text, line, "docs/benchmarks.md has other figures of %s: take them over, and run go run -C bench ./scale", what)
	}
	require.Equal(t, batched.asSagas(0.61, 0.66, 8), sagas)
}

// TestTheTablesOfThePageAreThoseOfTheProgram: docs/scale.md has the output of go run -C bench ./scale.
func TestTheTablesOfThePageAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	usual.print(&b, []float64{1e3, 1e4, 1e5, 1e6})
	require.Contains(t, page(t, "scale.md"), b.String(), "docs/scale.md: run go run -C bench ./scale, and put in what it prints")
}

func TestTwiceTheRateNeedsNoLess(t *testing.T) {
	t.Parallel()
	d := usual
	d.rate = 1
	before := batched.of(d)
	require.Equal(t, needs{
		databases: 1, relays: 2, partitions: 1, participants: 1, databaseCores: 1, relayCores: 1, brokerCores: 1, writersPerDatabase: 1,
		networkPerSecond: before.networkPerSecond, journalPerSecond: before.journalPerSecond,
	}, before)
	for range 24 {
		d.rate *= 2
		after := batched.of(d)
		require.GreaterOrEqual(t, after.databases, before.databases)
		require.GreaterOrEqual(t, after.partitions, before.partitions)
		require.GreaterOrEqual(t, after.participants, before.participants)
		require.GreaterOrEqual(t, after.brokerCores, before.brokerCores)
		// No database gets more than its measured capacity.
		require.LessOrEqual(t, d.rate/float64(after.databases), batched.relayRate*d.busy)
		before = after
	}
	require.Equal(t, 3, up(2.5))
	require.Equal(t, 2, up(2+1e-12))
	require.Equal(t, "1,234,567", thousands(1234567))
	require.Equal(t, "100", thousands(100))
}
