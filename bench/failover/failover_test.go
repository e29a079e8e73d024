package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryScenarioHasANameOfItsOwn(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range scenarios() {
		require.False(t, names[c.name()], c.name())
		require.LessOrEqual(t, len(c.name()), table.Width)
		names[c.name()] = true
	}
}
