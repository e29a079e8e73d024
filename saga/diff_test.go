package saga_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestDefinitionsDifferInWhatTheyDo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/order.saga.json")
	require.NoError(t, err)
	from, err := saga.Parse(text)
	require.NoError(t, err)
	require.Empty(t, saga.Diff(from, from))

	spec := from.Spec()
	spec.Version++
	steps := append(spec.Steps[1:len(spec.Steps):len(spec.Steps)], spec.Steps[0]) // another order of the list is no change
	spec.Steps = steps
	spec.Steps[len(steps)-1].Command.Type = "TakePayment"
	spec.Data["coupon"] = "string"
	to, err := saga.Define(spec)
	require.NoError(t, err)
	var said []string
	for _, c := range saga.Diff(from, to) {
		said = append(said, c.String())
	}
	require.Equal(t, []string{
		`+ data.coupon: "string"`, `~ steps.payment.command.type: "TakePayment", was "ChargePayment"`, fmt.Sprintf("~ version: %d, was %d", spec.Version, spec.Version-1),
	}, said)
	back := saga.Diff(to, from)
	require.True(t, strings.HasPrefix(back[0].String(), "- data.coupon"))
}

func ExampleDiff() {
	text, err := os.ReadFile("testdata/order.saga.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	from, err := saga.Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := from.Spec()
	spec.Version++
	to, err := saga.Define(spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range saga.Diff(from, to) {
		fmt.Println(c)
	}
	// Output:
	// ~ version: 2, was 1
}
