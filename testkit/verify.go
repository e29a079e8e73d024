package testkit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
	"github.com/troupe-go/troupe/topics"
)

// VerifyFlow fails a test for each finding of the services of a flow without an orchestrator, warnings included. It checks their
// declarations as the command `troupe flow verify` does, starts nothing, and needs no Stage.
func VerifyFlow(t testing.TB, services ...flow.Declaration) {
	t.Helper()
	for _, f := range verify.Flow(services) {
		t.Errorf("%s", f)
	}
}

// InFlow returns the declaration of a service, moved to the stage's own flow: its hop, and every topic of its flow, get the flow
// of Hop. Pass the result to flow.New in StageConfig.Handlers, with StageConfig.Hop as the name of the declared hop. Topics of other flows
// do not change.
func (s *Stage) InFlow(declared flow.Declaration) flow.Declaration {
	s.t.Helper()
	hop, err := topics.ParseHop(declared.Hop)
	require.NoError(s.t, err, "hop of the declaration")
	move := func(messages ...flow.Message) (moved []flow.Message) {
		for _, m := range messages {
			if rest, ok := strings.CutPrefix(m.Topic, hop.Flow()+"."); ok {
				m.Topic = s.Hop.Flow() + "." + rest
			}
			moved = append(moved, m)
		}
		return moved
	}
	moved := flow.Declaration{Hop: topics.MustHop(s.Hop.Flow(), hop.Name()).String(), Starts: move(declared.Starts...)}
	for _, r := range declared.Reactions {
		r.On, r.Success, r.Failure = move(r.On)[0], move(r.Success...), move(r.Failure...)
		moved.Reactions = append(moved.Reactions, r)
	}
	for _, j := range declared.Joins {
		j.Await, j.Success, j.Expired, j.Broken = move(j.Await...), move(j.Success...), move(j.Expired...), move(j.Broken...)
		moved.Joins = append(moved.Joins, j)
	}
	for _, e := range declared.Expectations {
		e.After, e.Expect, e.Raise, e.Late = move(e.After)[0], move(e.Expect...), move(e.Raise)[0], move(e.Late...)
		moved.Expectations = append(moved.Expectations, e)
	}
	return moved
}
