package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestSagaSchemaPrintsTheSchema(t *testing.T) {
	o := finish(t, command(t, nil, "saga", "schema"))
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Equal(t, string(saga.Schema()), o.stdout)
}
