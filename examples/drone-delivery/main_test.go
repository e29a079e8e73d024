package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestDroneDelivery runs the program and compares its output with the README.
func TestDroneDelivery(t *testing.T) {
	t.Parallel()
	s := servers{databases: make(map[string]string), brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	for _, hop := range hops {
		s.databases[hop] = testkit.EmptyDatabase(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, s, &out), out.String())
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "\n```text\n"+out.String()+"```\n")
}
