package decisions

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnEventThatAnEndedSagaLeavesIsForOneWithAnotherLock: the sagas of one guest have locks of their own, so they run at once.
func TestAnEventThatAnEndedSagaLeavesIsForOneWithAnotherLock(t *testing.T) {
	for name, lock := range map[string]string{"another lock": "data.id", "no lock": "''"} {
		t.Run(name, func(t *testing.T) {
			m, start, arrive, reserve := visit(t, fmt.Sprintf(`,"lock":%q`, lock))
			start("v-1")
			arrive("m-1")
			arrive("m-2")
			start("v-2")
			reserve("v-2")
			reserve("v-1")
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}
