package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/testkit"
)

// watched returns a console that also shows a watcher's flows.
func watched(t testing.TB) *desk {
	return newDesk(t, func(c *Config) {
		s := stage.New(t)
		s.Watched()
		c.Watch = s.Pool
	})
}

func TestFlowsAreShownByHowTheyStand(t *testing.T) {
	t.Parallel()
	d := watched(t)
	keys := func(address string) (all []string) {
		for _, one := range facts[flowsFacts](d, address).Flows {
			all = append(all, one.Key)
		}
		return all
	}
	require.Equal(t, []string{"w-5", "w-4", "w-3", "w-2", "w-1"}, keys("/flows"))
	require.Equal(t, []string{"w-4", "w-3", "w-1"}, keys("/flows?status=ended"))
	require.Equal(t, []string{"w-3"}, keys("/flows?status=compensated"))
	require.Equal(t, []string{"w-5"}, keys(at("/flows", "status", "under way")))
	require.Equal(t, []string{"w-2"}, keys("/flows?found=missing"))
	require.Equal(t, []string{"w-4"}, keys("/flows?found=unexpected"))
	require.Empty(t, keys("/flows?found=late"))
	require.Equal(t, []string{"w-1"}, keys("/flows?key=w-1"))
	require.Equal(t, []string{"w-4", "w-3", "w-2", "w-1"}, keys("/flows?since=3h&before=30m"))
	first := facts[flowsFacts](d, "/flows?limit=2")
	require.Len(t, first.Flows, 2)
	require.Equal(t, []string{"w-3", "w-2"}, keys(at("/flows", "limit", "2", "after", first.Next)))
	require.Contains(t, d.html("/flows"), "payment has not sent Paid or Declined")
	require.Contains(t, d.html("/flows?key=nobody"), "No flow fits")

	page := d.html("/flow?flow=shop&id=w-2")
	for _, text := range []string{"deviant", "Paid or Declined", `data-phase="missing"`, `data-phase="done"`, "/messages?q=w-2"} {
		require.Contains(t, page, text)
	}
	require.Contains(t, d.html("/flow?id=w-4"), "No service declares to send this here")
	require.Equal(t, []int{4}, facts[flowFacts](d, "/flow?id=w-4").Undeclared)
	shown := facts[flowFacts](d, "/flow?id=w-5").Shown
	require.Equal(t, watch.UnderWay, shown.Status)
	require.Contains(t, d.html("/flow?id=w-5"), "Awaited until")
	require.Contains(t, d.html("/"), "has not sent Paid or Declined", "a person should look")
	for address, status := range map[string]int{
		"/flows?status=dancing": 400, "/flows?found=odd": 400, "/flows?after=x": 400, "/flows?flow=none": 404, "/flow": 400, "/flow?id=nobody": 404,
		"/flow?flow=none&id=w-1": 404,
	} {
		require.Equal(t, status, d.get(address).Code, address)
	}
}

func TestWithoutAWatcherAPageSaysHowToHaveOne(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.Contains(t, d.html("/flows"), "troupe console --watch")
	require.Equal(t, http.StatusNotFound, d.get("/flow?id=w-1").Code)
	nobody := newDesk(t, func(c *Config) { c.Watch = testkit.Database(t) })
	require.Contains(t, nobody.html("/flows"), "No flow is watched in this database yet")
	require.Equal(t, http.StatusNotFound, nobody.get("/flow?id=w-1").Code)
	nobody.cfg.Watch.Close()
	require.Contains(t, nobody.html("/"), "The watcher&#39;s database cannot be read")
}

// Clocks differ: a message may be before its cause, which then may not be shown at all.
func TestACauseMayStandBehindWhatFollowsFromIt(t *testing.T) {
	t.Parallel()
	f := flowFacts{Shown: &watch.Flow{Messages: make([]watch.Message, shownMessages+1)}}
	for i := range f.Shown.Messages {
		f.Shown.Messages[i].Cause = -1
	}
	f.Shown.Messages[0].Cause, f.Shown.Messages[1].Cause = 2, shownMessages
	require.Equal(t, []int{1}, f.Timeline()[2].Causes)
	require.Len(t, f.Graph().Edges, 1)
}
