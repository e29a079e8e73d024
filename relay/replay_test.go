package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// published puts the table into the state under wal: rows stay, and all visible rows are published.
func (s *stage) published() {
	s.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published)
		SELECT 'troupe', 'wal', system_identifier::text, 1, pg_current_snapshot() FROM pg_control_system()`)
}

func texts(records []*kgo.Record) (all []string) {
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return all
}

func TestAReplayPublishesOnceMoreWhatWasPublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload, created_at) VALUES ($1, 'k', 'Thing', '2', '2020-01-01')", s.topic)
	other := s.createTopic("other", 1)
	s.insert(other, "k", "3")
	s.insert(s.topic, "k", "4")
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 1, 'e' FROM troupe.outbox WHERE payload = '4'`)
	s.published()
	s.insert(s.topic, "k", "5")                                                                                       // not published yet
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload, xid) VALUES ($1, 'k', 'Thing', '6', '3')", s.topic) // nor is a restored one
	into := s.createTopic("copy", 1)
	here := testkit.Consume(t, s.brokers, s.topic, other)
	there := testkit.Consume(t, s.brokers, into)

	var told []relay.ReplayProgress
	p, err := relay.Replay{}.Run(t.Context(), s.config(), func(p relay.ReplayProgress) { told = append(told, p) })
	require.NoError(t, err)
	require.Equal(t, int64(3), p.Published)
	require.Equal(t, p.Last, p.Position)
	require.Equal(t, []string{"1", "2", "3"}, sorted(texts(here.WaitN(3))), "neither failed nor unpublished rows")
	require.GreaterOrEqual(t, len(told), 3)
	require.Zero(t, told[0].Published)
	require.Equal(t, p, told[len(told)-1])

	for _, c := range []struct {
		name   string
		replay relay.Replay
		want   []string
	}{
		{"from a position", relay.Replay{From: 2}, []string{"2", "3"}},
		{"up to one", relay.Replay{To: 2}, []string{"1", "2"}},
		{"since a time", relay.Replay{Since: time.Now().Add(-time.Hour)}, []string{"1", "3"}},
		{"until a time", relay.Replay{Until: time.Now().Add(-time.Hour)}, []string{"2"}},
		{"of one topic", relay.Replay{Topic: other}, []string{"3"}},
		{"from behind the end", relay.Replay{From: 100}, nil},
	} {
		c.replay.Into = into
		before := len(there.WaitN(0))
		p, err := c.replay.Run(t.Context(), s.config(), nil)
		require.NoError(t, err, c.name)
		require.Equal(t, int64(len(c.want)), p.Published, c.name)
		require.Equal(t, c.want, append([]string(nil), texts(there.WaitN(before + len(c.want)))[before:]...), c.name)
	}
	require.Equal(t, 6, s.count("SELECT count(*) FROM troupe.outbox"), "nothing is taken away")
	ids := func(records []*kgo.Record) map[string]bool {
		all := make(map[string]bool)
		for _, r := range records {
			for _, h := range r.Headers {
				if h.Key == "ce_id" {
					all[string(h.Value)] = true
				}
			}
		}
		return all
	}
	require.Equal(t, ids(here.WaitN(3)), ids(there.WaitN(0)), "the rows keep their ids")
}

func sorted(all []string) []string {
	s := map[string]bool{}
	for _, one := range all {
		s[one] = true
	}
	out := make([]string, 0, len(s))
	for n := range 10 {
		if s[fmt.Sprint(n)] {
			out = append(out, fmt.Sprint(n))
		}
	}
	return out
}

func TestAReplayUnderPollSaysThatTheRowsAreGone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	_, err := relay.Replay{From: 1}.Run(t.Context(), s.config(), nil)
	require.ErrorIs(t, err, relay.ErrNothingPublished)
}

func TestAReplayOfACopyIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	s.published()
	s.exec("UPDATE troupe.relay_state SET system_id = '1'")
	_, err := relay.Replay{From: 1}.Run(t.Context(), s.config(), nil)
	require.ErrorContains(t, err, "of another cluster")
}

func TestAReplayKeepsItsRateAndEndsWhenAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for n := range 5 {
		s.insert(s.topic, "k", fmt.Sprint(n))
	}
	s.published()
	ctx, cancel := context.WithCancel(t.Context())
	var last relay.ReplayProgress
	_, err := relay.Replay{Rate: 1}.Run(ctx, s.config(), func(p relay.ReplayProgress) {
		last = p
		if p.Published == 1 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(1), last.Published, "one row is sent at once, and the next one a second later")

	p, err := relay.Replay{From: last.Position + 1}.Run(t.Context(), s.config(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(4), p.Published, "it goes on where it ended")
}

func TestAReplayToATopicThatIsNotThereFailsByName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	s.published()
	_, err := relay.Replay{Into: s.flow + ".none.commands"}.Run(t.Context(), s.config(), nil)
	require.ErrorContains(t, err, "positions 1 to 1: UNKNOWN_TOPIC_OR_PARTITION")
}

func TestAReplayThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []relay.Replay{
		{From: -1}, {From: 2, To: 1}, {Rate: -1}, {Rate: 1_000_000}, {Since: time.Unix(2, 0), Until: time.Unix(1, 0)},
		{Into: "troupe.relay.shop"},
	} {
		require.Error(t, r.Validate(), "%+v", r)
	}
}

func ExampleReplay() {
	err := relay.Replay{From: 5, To: 1}.Validate()
	fmt.Println(err)
	// Output: replay: from position 5 to 1: want the lower one first
}

func TestAReplayOfWhatAStreamPublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.wal()
	r := s.start(cfg)
	waitRole(t, r, relay.Active)
	testkit.Wait(t, "a stream", func() (bool, error) { // until then the relay polls, and deletes rows
		return s.count("SELECT count(*) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL AND published IS NOT NULL") == 1, nil
	})
	for n := range 3 {
		s.insert(s.topic, "k", fmt.Sprint(n))
	}
	testkit.Consume(t, s.brokers, s.topic).WaitN(3)
	into := s.createTopic("copy", 1)
	testkit.Wait(t, "the state is stored", func() (bool, error) {
		p, err := relay.Replay{From: 1, Into: into}.Run(t.Context(), s.config(), nil)
		return p.Published == 3, err
	})
	r.Pause()
	p, err := relay.Replay{From: 2, Into: into}.Run(t.Context(), s.config(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), p.Published)
	require.Equal(t, 3, s.count("SELECT count(*) FROM troupe.outbox"))
	s.insert(s.topic, "k", "3")
	r.Resume()
	testkit.Consume(t, s.brokers, s.topic).WaitN(4)
}
