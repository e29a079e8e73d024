package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// A retry of all parked sagas of a type names the type that does not exist, the sagas that it leaves, and that none is left.
func TestARetryOfAllParkedSagasPrintsEachResult(t *testing.T) {
	t.Parallel()
	s := newDecider(t)
	by := func(name string, more ...string) []string {
		return append([]string{"saga", "retry", "--saga", name, "--actor", "ann", "--reason", "ticket 4711", "--yes"}, more...)
	}
	o := s.troupe(by("oder")...)
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, `saga type "oder": not found in this database: troupe saga list --counts shows what there is`)
	require.Equal(t, outcome{stdout: "No saga of this type is parked: there is nothing to do.\n"}, s.troupe(by("order")...))

	for _, key := range []string{"o-1", "o-2"} {
		s.tell(key+" ReserveStock", "fail")
		s.begin("order", key, saga.Parked)
		s.tell(key+" ReserveStock", "")
	}
	s.exec("UPDATE troupe.sagas SET content_type = 'application/avro' WHERE id = 'order/o-2'")
	o = s.troupe(by("order", "--output", "json")...)
	require.Equal(t, exitFailed, o.status)
	require.Equal(t, "troupe: 1 saga was not retried\n", o.stderr)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"id": "order/o-1", "steps": ["inventory exhausted"]}`, lines[0])
	require.Contains(t, lines[1], "name the schema registry")
	require.JSONEq(t, `{"done": true, "retried": 1, "stays": 1}`, lines[2])
	s.await("order/o-1", saga.Completed)
	s.await("order/o-2", saga.Parked)
}
