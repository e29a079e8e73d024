package verify_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// branching returns a definition with steps that have conditions, and a step after the first of them.
func branching(t *testing.T, ends []saga.End, conditions ...string) *saga.Definition {
	t.Helper()
	spec := saga.Spec{Saga: "order", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}, Ends: ends}
	for _, name := range strings.Split("abcdefghij", "") {
		spec.Data[name] = saga.Int
	}
	for i, when := range conditions {
		spec.Steps = append(spec.Steps, saga.Step{
			Name: fmt.Sprintf("s%d", i), When: when, Command: &saga.Command{Hop: "hop", Type: fmt.Sprintf("Do%d", i), Input: saga.Mapping{}},
			Success: []saga.Answer{{Event: "Done"}},
		})
	}
	spec.Steps = append(spec.Steps, saga.Step{
		Name: "last", Needs: []string{"s0"}, Command: &saga.Command{Hop: "hop", Type: "DoLast", Input: saga.Mapping{}}, Success: []saga.Answer{{Event: "Done"}},
	})
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// TestNumbersOfAConditionAreTriedOnce: to try the sums of each two of these 54,000 numbers would take an hour, longer than the tests may run.
func TestNumbersOfAConditionAreTriedOnce(t *testing.T) {
	t.Parallel()
	same := "data.a in [1" + strings.Repeat(",1", 900) + "]"
	verify.Definition(branching(t, nil, slices.Repeat([]string{same}, 60)...), verify.Options{})
}

// TestACheckEndsWithItsContext checks definitions of the largest size, which a service may store.
func TestACheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var bounds []string
	for i := range 60 {
		text := fmt.Sprintf("data.a < %d", i)
		for n := range 50 {
			text += fmt.Sprintf(" || data.a > %d && data.%c < 5", n, 'b'+n%9)
		}
		bounds = append(bounds, text)
	}
	var ends []saga.End
	for i := range 3000 {
		ends = append(ends, saga.End{When: fmt.Sprintf("data.%c > %d", 'a'+i%10, i), Then: saga.ThenComplete})
	}
	for name, d := range map[string]*saga.Definition{
		"many bounds": branching(t, nil, bounds...),
		"many ends":   branching(t, ends, slices.Repeat([]string{"data.a > 1 && data.b > 2 && data.c > 3 && data.d > 4"}, 60)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := verify.Within(ctx, d, verify.Options{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// TestTheLinesOfManyFindingsAreFoundInOneReading: a definition of the largest size has thousands of findings, and takes milliseconds to read.
func TestTheLinesOfManyFindingsAreFoundInOneReading(t *testing.T) {
	var ends []saga.End
	for i := range 1000 {
		ends = append(ends, saga.End{When: fmt.Sprintf("data.a > %d", i), Then: saga.ThenComplete})
	}
	text := branching(t, ends, "data.a > 1").JSON()
	found := make([]verify.Finding, 1000)
	for i := range found {
		found[i].Path = fmt.Sprintf("ends[%d].when", i)
	}
	one := testing.AllocsPerRun(1, func() { verify.Lines(text, found[:1]) })
	all := testing.AllocsPerRun(1, func() { verify.Lines(text, found) })
	require.Less(t, all, 2*one)
	require.Equal(t, found[0].Line+999*(found[1].Line-found[0].Line), found[999].Line)
}
