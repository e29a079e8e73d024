package ambassador_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/ambassador"
)

// TestMeaning covers every valid status, and invalid ones.
func TestMeaning(t *testing.T) {
	t.Parallel()
	again := map[int]bool{408: true, 425: true, 429: true}
	for status := -1; status <= 1000; status++ {
		want := ambassador.Wrong
		switch {
		case again[status], status/100 == 5:
			want = ambassador.Again
		case status/100 == 2:
			want = ambassador.Done
		case status/100 == 4:
			want = ambassador.Refused
		}
		require.Equal(t, want, ambassador.Meaning(status), "%d", status)
	}
}
