package verify_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

func event(hop, typ string) flow.Message {
	return flow.Message{Topic: hop + ".events", Type: typ}
}

func last(m flow.Message) flow.Message {
	m.Last = true
	return m
}

// chain returns n services in a row. Each may refuse, and then the ones before it undo their part, one after the other.
func chain(n int) (services []flow.Declaration) {
	hop := func(i int) string { return fmt.Sprintf("chain.s%02d", i) }
	for i := range n {
		s := flow.Declaration{Hop: hop(i)}
		done, undone := event(hop(i), fmt.Sprintf("Done%d", i)), event(hop(i), fmt.Sprintf("Undone%d", i))
		refused := event(hop(i), fmt.Sprintf("Refused%d", i))
		done.Last, undone.Last, refused.Last = i == n-1, i == 0, false
		on := flow.Message{Topic: "chain.s00.events", Type: "Begun"}
		if i == 0 {
			s.Starts, refused.Last = []flow.Message{on}, true
		} else {
			on = event(hop(i-1), fmt.Sprintf("Done%d", i-1))
		}
		s.Reactions = append(s.Reactions, flow.Reaction{On: on, Success: []flow.Message{done}, Failure: []flow.Message{refused}})
		if i < n-1 {
			for _, after := range []string{"Refused", "Undone"} {
				if after == "Undone" && i == n-2 {
					continue // nothing undoes the last
				}
				s.Reactions = append(s.Reactions, flow.Reaction{
					On: event(hop(i+1), fmt.Sprintf("%s%d", after, i+1)), Success: []flow.Message{undone}, Undoes: []string{done.Type},
				})
			}
		}
		services = append(services, s)
	}
	return services
}

// fan returns n services that do their part in parallel, and one that joins them. When one refuses, all undo their part.
func fan(n int) []flow.Declaration {
	start := last(event("fan.shop", "Begun"))
	shop := flow.Declaration{Hop: "fan.shop", Starts: []flow.Message{event("fan.shop", "Begun")}}
	given := event("fan.shop", "GivenUp")
	start.Last = false
	j := flow.Join{Name: "all", Within: "1h", Success: []flow.Message{last(event("fan.shop", "Done"))}, Expired: []flow.Message{given}}
	services := []flow.Declaration{}
	for i := range n {
		hop := fmt.Sprintf("fan.s%02d", i)
		services = append(services, flow.Declaration{Hop: hop, Reactions: []flow.Reaction{
			{On: start, Success: []flow.Message{event(hop, "Did")}, Failure: []flow.Message{last(event(hop, "Refused"))}},
			{On: given, Undoes: []string{"Did"}},
		}})
		j.Await = append(j.Await, event(hop, "Did"))
	}
	shop.Joins = []flow.Join{j}
	return append(services, shop)
}

func TestTheBenchmarksFlowsAreSound(t *testing.T) {
	t.Parallel()
	for _, services := range [][]flow.Declaration{chain(50), fan(8)} {
		for _, s := range services {
			require.NoError(t, s.Check())
		}
		require.Empty(t, verify.Flow(services))
	}
}

// TestWhereThereAreTooManyRunsItSaysSo has thirty services of which each may refuse independently, so 2^30 ways to end. The
// verifier stops early and reports it, and still finds the mistakes that a part of the flow shows.
func TestWhereThereAreTooManyRunsItSaysSo(t *testing.T) {
	t.Parallel()
	services := fan(30)
	services[3].Reactions[1].Undoes = nil
	rules := make(map[string]int)
	for _, f := range verify.Flow(services) {
		rules[f.Rule]++
	}
	require.Positive(t, rules["too-many-cases"])
	require.Equal(t, 1, rules["missing-undo"], "%v", rules)
	delete(rules, "too-many-cases")
	require.Len(t, rules, 1, "%v", rules)
}

func BenchmarkFlow(b *testing.B) {
	for name, services := range map[string][]flow.Declaration{
		"50-in-a-row": chain(50), "8-beside-each-other": fan(8), "50-beside-each-other": fan(49),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				verify.Flow(services)
			}
		})
	}
}
