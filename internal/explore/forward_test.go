package explore_test

import (
	"testing"

	"github.com/troupe-go/troupe/internal/explore"
)

// In TestNoStepIsMissingBehindAPivotThatIsDoneLate the pivot, which can be compensated, is in doubt while a parallel step runs.
func TestNoStepIsMissingBehindAPivotThatIsDoneLate(t *testing.T) {
	t.Parallel()
	sound(t, load(t, "testdata/pivot-first.saga.json"), explore.Config{})
}
