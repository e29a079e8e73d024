package console

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAPageOfADefinitionDoesNotWaitForItsCheck: a service may store a definition that is checked for minutes.
func TestAPageOfADefinitionDoesNotWaitForItsCheck(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	spec := saga.Spec{Saga: "large", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "a": saga.Int, "b": saga.Int}}
	for i := range 60 {
		spec.Steps = append(spec.Steps, saga.Step{
			Name: fmt.Sprintf("s%d", i), When: "data.a > 1 && data.b > 2", Success: []saga.Answer{{Event: "Done"}},
			Command: &saga.Command{Hop: "hop", Type: fmt.Sprintf("Do%d", i), Input: saga.Mapping{}},
		})
	}
	for i := range 3000 {
		spec.Ends = append(spec.Ends, saga.End{When: fmt.Sprintf("data.a > %d", i), Then: saga.ThenComplete})
	}
	large, err := saga.Define(spec)
	require.NoError(t, err)
	_, err = d.Pool.Exec(t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'large', 1, $2)", large.Hash(), string(large.JSON()))
	require.NoError(t, err)
	page := d.html(at("/definition", "db", "order", "hash", large.Hash()))
	require.Contains(t, page, "warning: not-checked")
	require.Contains(t, page, "the definition was not checked, since that takes longer than 2s")
}
