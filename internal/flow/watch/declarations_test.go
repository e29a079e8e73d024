package watch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/testkit"
)

// TestAWatcherWithFormerDeclarationsLeavesNoJudgement checks a rolling deploy: the former process goes on for a while after the new one has
// registered other declarations.
func TestAWatcherWithFormerDeclarationsLeavesNoJudgement(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	declareTaken := func(c *watch.Config) {
		c.Declared[2].Reactions[0].Success[0].Type = "Taken"
		c.Declared[3].Joins[0].Await[1].Type = "Taken"
	}
	s.send(order("o-1")...)
	s.send(said{hop: "order", typ: "Placed", key: "o-2", id: "o-2-1", ago: order("")[0].ago})
	former := s.watch()
	s.judged()
	register := s.watch(declareTaken, func(c *watch.Config) { c.Brokers = []string{"127.0.0.1:1"} }) // it registers, and reads nothing yet
	testkit.Wait(t, "the new declarations", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.watch_flows WHERE declared::text LIKE '%Taken%'") == 1, nil
	})
	register.stop()
	testkit.Wait(t, "a judgement of the former watcher", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.watch_marks") > 0 && s.count("SELECT count(*) FROM troupe.watch_findings") > 0, nil
	})
	former.stop()

	s.watch(declareTaken)
	s.judged()
	found, err := s.desk().Findings(t.Context(), false, 10)
	require.NoError(t, err)
	var texts []string
	for _, f := range found {
		texts = append(texts, f.Key+" "+string(f.Kind)+" "+f.Hop+" "+f.Type)
	}
	require.ElementsMatch(t, []string{
		" unexpected  Reserved", // counted by the new declarations
		"o-1 missing " + s.flow + ".inventory Placed",
		"o-2 missing " + s.flow + ".inventory Placed",
		"o-2 missing " + s.flow + ".payment Placed",
	}, texts)
}
