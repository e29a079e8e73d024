package participant_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestTheTextsOfArgumentsCountTowardsTheLimitOfABatch checks each type of argument that counts.
func TestTheTextsOfArgumentsCountTowardsTheLimitOfABatch(t *testing.T) {
	t.Parallel()
	text := "12345"
	for name, arg := range map[string]any{
		"text": text, "pointer": &text, "bytes": []byte(text), "JSON": json.RawMessage(text), "texts": []string{"12", "345"},
		"named": pgx.NamedArgs{"a": &text, "b": 7},
	} {
		require.Equal(t, 5, participant.SizeOf(arg), name)
	}
	require.Zero(t, participant.SizeOf((*string)(nil)))
}
