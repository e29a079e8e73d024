package saga_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestADefinitionIsRefusedIfItsStoredFormIsTooLarge: U+2028 has three bytes in the text, and six in the stored form.
func TestADefinitionIsRefusedIfItsStoredFormIsTooLarge(t *testing.T) {
	_, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},"description":"` + strings.Repeat("\u2028", 200_000) + `"}`))
	require.ErrorContains(t, err, "bytes in its stored form, which is indented: at most 1048576")
	require.ErrorAs(t, err, new(saga.Mistakes))
}
