package verify_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// wide returns a saga of n steps: a chain in which every third step splits by conditions over as many variables, and joins again.
func wide(t testing.TB, n int) *saga.Definition {
	t.Helper()
	spec := saga.Spec{Saga: "wide", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}, Timeout: saga.Duration(240 * time.Hour)}
	before := ""
	for i := range n {
		name := fmt.Sprintf("s%02d", i)
		out := fmt.Sprintf("out%02d", i)
		spec.Data[out] = saga.String
		st := saga.Step{
			Name: name, Command: &saga.Command{Hop: "payment", Type: "Do" + name, Input: saga.Mapping{"id": "data.id"}},
			Success: []saga.Answer{{Event: "Done" + name, Set: saga.Mapping{out: "event.out"}}},
			Failure: []saga.Answer{{Event: "Refused" + name, Reason: "event.reason"}},
			Timeout: saga.Duration(10 * time.Minute),
			Compensation: &saga.Compensation{
				Command: &saga.Command{Hop: "payment", Type: "Undo" + name, Input: saga.Mapping{
					"id": "data.id", "out": fmt.Sprintf("has(data.%s) ? data.%s : ''", out, out),
				}},
				Success: []saga.Answer{{Event: "Undone" + name}},
			},
		}
		split := fmt.Sprintf("v%02d", i/3)
		switch {
		case i%3 == 0:
			spec.Data[split] = saga.Int
			if before != "" {
				st.Needs, st.Join = []string{before, fmt.Sprintf("s%02d", i-2)}, saga.Merge
			}
			st.Command.Input["amount"] = "data." + split
		case i%3 == 1:
			st.Needs, st.When = []string{fmt.Sprintf("s%02d", i-1)}, fmt.Sprintf("data.%s < 100", split)
		default:
			st.Needs, st.When = []string{fmt.Sprintf("s%02d", i-2)}, fmt.Sprintf("data.%s >= 100", split)
			before = name
		}
		spec.Steps = append(spec.Steps, st)
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

func TestTheBenchmarksDefinitionIsSound(t *testing.T) {
	t.Parallel()
	require.Empty(t, verify.Definition(wide(t, 20), verify.Options{}))
}

// BenchmarkDefinition measures the verification without parsing. A definition has at most 64 steps.
func BenchmarkDefinition(b *testing.B) {
	for _, n := range []int{3, 20, 40, 64} {
		b.Run(fmt.Sprintf("%d-steps", n), func(b *testing.B) {
			d := wide(b, n)
			b.ReportAllocs()
			for b.Loop() {
				verify.Definition(d, verify.Options{})
			}
		})
	}
}

// BenchmarkJSON also parses the definition, of 20 steps.
func BenchmarkJSON(b *testing.B) {
	text := wide(b, 20).JSON()
	b.ReportAllocs()
	for b.Loop() {
		verify.JSON(text, verify.Options{})
	}
}
