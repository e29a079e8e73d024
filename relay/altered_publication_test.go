package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// While the publication is altered the log does not have the rows that are inserted. They are published from the table once
// the publication has them again, before later rows of their key, and the relay is not ready until then.
func TestRowsThatAnAlteredPublicationLeftOutArePublished(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	cfg := s.wal()
	cfg.Lease = 5 * time.Second // the relay is ready as long without progress
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	want := []string{"0"}
	for _, c := range []struct{ off, on, obstacle string }{
		{"SET (publish = 'update')", "SET (publish = 'insert')", "does not publish inserts"},
		{"SET TABLE troupe.outbox WHERE (position < 0)", "SET TABLE troupe.outbox", "has a row filter"},
		{"DROP TABLE troupe.outbox", "ADD TABLE troupe.outbox", "does not hold"},
	} {
		require.Equal(t, want, values(s.gather(len(want), s.topic)))
		s.waitProven()
		s.exec("ALTER PUBLICATION troupe_outbox " + c.off)
		want = append(want, strings.Fields(c.off)[1]+" 1", strings.Fields(c.off)[1]+" 2")
		s.insert(s.topic, "k", want[len(want)-2])
		testkit.Wait(t, "unreadiness", func() (bool, error) {
			err := r.Ready()
			return err != nil && strings.Contains(err.Error(), c.obstacle), nil
		})
		s.exec("ALTER PUBLICATION troupe_outbox " + c.on)
		s.insert(s.topic, "k", want[len(want)-1])
		s.waitStream()
	}
	require.Equal(t, want, values(s.gather(len(want), s.topic)))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}

// A change that nobody notices while it lasts leaves rows out too.
func TestRowsThatABriefAlterationLeftOutArePublishedInOrder(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	s.start(s.wal())
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.gather(1, s.topic)
	s.waitProven()
	s.exec("ALTER PUBLICATION troupe_outbox SET (publish = 'update')")
	s.insert(s.topic, "k", "1")
	s.exec("ALTER PUBLICATION troupe_outbox SET (publish = 'insert')")
	s.insert(s.topic, "k", "2")
	require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, s.topic)))
}
