package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

// dense returns n services, each of which reacts to the successes and failures of all services before it.
func dense(n int) (services []flow.Declaration) {
	sent := func(i int, what string) flow.Message {
		return flow.Message{Topic: fmt.Sprintf("dense.s%02d.events", i), Type: fmt.Sprintf("%s%d", what, i)}
	}
	for i := range n {
		s := flow.Declaration{Hop: fmt.Sprintf("dense.s%02d", i)}
		if i == 0 {
			s.Starts = []flow.Message{sent(0, "Done")}
		}
		for k := range i {
			s.Reactions = append(s.Reactions, flow.Reaction{
				On: sent(k, "Done"), Success: []flow.Message{sent(i, "Done")}, Failure: []flow.Message{sent(i, "Refused")},
			})
			if k > 0 {
				s.Reactions = append(s.Reactions, flow.Reaction{
					On: sent(k, "Refused"), Success: []flow.Message{sent(i, "Undone")}, Undoes: []string{sent(i, "Done").Type},
				})
			}
		}
		services = append(services, s)
	}
	return services
}

// TestTheStepsOfADenseFlowAreBoundedByItsReactions has 40 services with half a million pairs of a reaction and a failure, each of
// which is a question. The number of reactions bounds the steps, and the parts that were not checked are reported.
func TestTheStepsOfADenseFlowAreBoundedByItsReactions(t *testing.T) {
	t.Parallel()
	m := verified(dense(40))
	most := maxSteps * (maxCases + maxTogether + maxOfOne + minOfOne*len(m.reactions))
	require.LessOrEqual(t, m.steps, most+most/10, "%d reactions", len(m.reactions))
	require.True(t, has(m.findings, "too-many-cases"))
	t.Logf("%d of %d steps", m.steps, most)
}
