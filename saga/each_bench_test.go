package saga_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// BenchmarkDecide measures one decision: the answer to a step in the midst of a saga of 64 steps, and the answer to an item in
// the midst of a step with 100 items.
//
//	go test -run '^$' -bench BenchmarkDecide ./saga
func BenchmarkDecide(b *testing.B) {
	command := `"command":{"hop":"h","type":"Do","input":{"id":"data.id"}},"success":[{"event":"Done","set":{"%s":"event.v"}}],"failure":[{"event":"No"}],"timeout":"1h",
"compensation":{"command":{"hop":"h","type":"Undo"},"success":[{"event":"Undone"}]}`
	var steps []string
	for i := range 64 {
		needs := ""
		if i > 0 {
			needs = fmt.Sprintf(`"needs":["s%d"],`, i-1)
		}
		steps = append(steps, fmt.Sprintf(`{"name":"s%d",%s%s}`, i, needs, fmt.Sprintf(command, fmt.Sprintf("v%d", i))))
	}
	var data []string
	for i := range 64 {
		data = append(data, fmt.Sprintf(`"v%d":"any"`, i))
	}
	b.Run("64 steps", func(b *testing.B) {
		benchmarkDecide(b, `{"saga":"long","version":1,"key":"id","data":{"id":"string",`+strings.Join(data, ",")+`},"steps":[`+strings.Join(steps, ",")+`]}`,
			func(i int) string { return fmt.Sprintf("s%d", i) }, 32, nil)
	})
	list := make([]any, 100)
	for i := range list {
		list[i] = map[string]any{"name": fmt.Sprint("p-", i)}
	}
	b.Run("100 items", func(b *testing.B) {
		benchmarkDecide(b, `{"saga":"wide","version":1,"key":"id","data":{"id":"string","l":"any","v":"any"},"steps":[
{"name":"s","forEach":{"list":"data.l","as":"x","max":100,"parallel":10},`+fmt.Sprintf(command, "v")+`}]}`,
			func(i int) string { return fmt.Sprintf("s[%d]", i) }, 50, list)
	})
}

func benchmarkDecide(b *testing.B, text string, name func(int) string, before int, list any) {
	b.Helper()
	d := parse(b, text)
	fields := map[string]any{"id": "k-1"}
	if list != nil {
		fields["l"] = list
	}
	s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: fields}, noon)
	require.Empty(b, fx.Refused)
	answer := func(i int) saga.Event {
		return saga.Event{
			Kind: saga.Answered, Step: name(i), Operation: "forward", Outcome: "success", Hop: "h", Type: "Done", Fields: map[string]any{"v": "x"},
		}
	}
	for i := range before {
		s, fx = saga.Decide(d, s, answer(i), noon)
		require.Empty(b, fx.Ignored)
	}
	e := answer(before)
	b.ReportAllocs()
	for b.Loop() {
		_, fx = saga.Decide(d, s, e, noon)
	}
	require.Len(b, fx.Commands, 1)
}
