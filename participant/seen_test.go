package participant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

func TestProcessedOffsetsAreSkipped(t *testing.T) {
	t.Parallel()
	type runs = []participant.Run
	for _, c := range []struct {
		name   string
		above  runs
		offset int64
		epoch  int32
		want   bool
	}{
		{"below the watermark", nil, 5, 3, true},
		{"the watermark", nil, 10, 3, true},
		{"above it", nil, 11, 3, false},
		{"written over a truncated end", nil, 5, 4, false},
		{"in a run", runs{{13, 15, 3}}, 14, 3, true},
		{"before a run", runs{{13, 15, 3}}, 12, 3, false},
		{"behind a run", runs{{13, 15, 3}}, 16, 3, false},
		{"in the second of two that touch", runs{{13, 15, 3}, {16, 17, 3}}, 17, 3, true},
		{"in one within another", runs{{13, 20, 3}, {15, 16, 3}}, 19, 3, true},
		{"in a run that was cut off", runs{{13, 15, 3}}, 14, 4, false},
		{"under the later of two leaders", runs{{13, 20, 3}, {15, 16, 4}}, 15, 4, true},
		{"of the earlier of two leaders", runs{{13, 20, 3}, {15, 16, 4}}, 18, 4, false},
		{"before the later of two leaders", runs{{13, 20, 3}, {15, 16, 4}}, 14, 3, true},
		{"of the earlier leader where both begin", runs{{13, 20, 3}, {13, 14, 4}}, 15, 3, false},
		{"under a leader before", runs{{13, 15, 5}}, 14, 3, true},
	} {
		require.Equal(t, c.want, participant.Seen(10, 3, c.above, c.offset, c.epoch), c.name)
	}
}

// TestTheWatermarkOutlastsTheInbox checks that a topic read from its start again changes nothing, also when the identities of
// its messages were deleted; one whose log was cut and continued is new.
func TestTheWatermarkOutlastsTheInbox(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	run := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Log = 3, zerolog.New(&log) })
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	if !strings.Contains(log.String(), "lease not released") { // the end does not wait for a database that is slow to answer
		require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.leases WHERE watermark = 9 AND released_at IS NOT NULL"), log.String())
		require.Zero(t, s.count("SELECT count(*) FROM troupe.inbox_offsets"))
	}

	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.rewind()
	stop = run()
	s.send(s.commandsFrom(5, 2, 1)...)
	s.expectAll(2, 6)
	stop()

	_, err = s.pool.Exec(t.Context(), "DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark_epoch = -2") // any leader is a later one
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.rewind()
	run()
	s.waitCount(24, "SELECT count(*) FROM done")
}

// TestTheRingForgetsByDay checks that an identity is stored for its days, and its table is emptied before the ring comes round.
func TestTheRingForgetsByDay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(func(c *participant.Config) { c.InboxRetention = 3 * 24 * time.Hour })
	const day = 24 * time.Hour
	now := time.Now()
	left := func() int { return s.count("SELECT count(*) FROM troupe.inbox_recent") }
	takes, err := p.Turn(now)
	require.NoError(t, err)
	require.True(t, takes)
	slot, ok := participant.Slot(envelope.NewID())
	require.True(t, ok)
	_, err = s.pool.Exec(t.Context(), `
		INSERT INTO troupe.inbox_recent (slot, id, consumer_group) SELECT $1, gen_random_uuid(), 'g' FROM generate_series(1, 100)`, slot)
	require.NoError(t, err)
	for days := range 40 {
		_, err := p.Turn(now.Add(time.Duration(days) * day))
		require.NoError(t, err)
		if days <= 7 {
			require.Equal(t, 100, left(), "day %d", days)
		}
	}
	require.Zero(t, left())
	_, err = p.Turn(now) // another clock is behind: no identity of the days to come is lost
	require.NoError(t, err)
	for _, other := range []string{"", "x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", fmt.Sprintf("{%s}", envelope.NewID())} {
		_, ok := participant.Slot(other)
		require.False(t, ok, other)
	}
}

// TestAnIdentityIsKnownWhereverItStands checks one that was handled when its day had no table, or before there were any.
func TestAnIdentityIsKnownWhereverItStands(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	first, second, old := s.command("a", Count{N: 1}), s.command("a", Count{N: 2}), s.command("a", Count{N: 3})
	old.ID = "00000000-0001-7000-8000-" + first.ID[24:] // of 1970
	slot, _ := participant.Slot(old.ID)
	_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.inbox (consumer_group, message_id) VALUES ($1, $2)", s.hop.String(), first.ID)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "INSERT INTO troupe.inbox_recent (slot, consumer_group, id) VALUES ($1, $2, $3)", slot, s.hop.String(), old.ID)
	require.NoError(t, err)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.start(p)
	s.send(first, second, old, s.command("a", Count{N: 4}))
	s.waitCount(2, "SELECT count(*) FROM done WHERE n IN (2, 4)")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
}
