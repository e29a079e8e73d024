package saga_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// parse reads a definition, with strings of its text replaced.
func parse(t testing.TB, text string, replaced ...string) *saga.Definition {
	t.Helper()
	d, err := saga.Parse([]byte(strings.NewReplacer(replaced...).Replace(text)))
	require.NoError(t, err)
	return d
}
