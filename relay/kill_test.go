//go:build unix

package relay_test

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A02, A03: a row is durable before anything is sent, and a crash between any two steps loses no row.
func TestAKillAtAnyArrowLosesNothingAndKeepsOrder(t *testing.T) {
	t.Parallel()
	for _, arrow := range []struct {
		at         string
		maxRepeats int // of one send
	}{
		{"before send", 0},
		{"after send, before ack", 100},
		{"after ack, before delete", 100},
		{"after delete", 0},
	} {
		t.Run(arrow.at, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			committed := s.fill(s.topic, 20, 25)
			victim := s.spawn(childConfig{
				// A lease that is lost between an acknowledgement and the delete would cause repeats of its own.
				Holder: "victim", Batch: 100, Lease: 5 * time.Second, KillAt: arrow.at, KillNth: 3,
			})
			status := victim.wait(waitLimit)
			require.Equal(t, syscall.SIGKILL, status.Signal())
			left := s.count("SELECT count(*) FROM troupe.outbox")
			require.Positive(t, left, "the kill came too late to show anything")
			require.Less(t, left, 500, "the kill came before anything happened")

			s.start(s.config())
			v := judge(s.collect(500, s.topic), committed)
			v.requireSound(t)
			require.LessOrEqual(t, v.repeated, arrow.maxRepeats)
			if arrow.at == "after ack, before delete" {
				require.Positive(t, v.repeated, "acknowledged and not deleted means sent again")
			}
		})
	}
}

// TestSoak kills relays under load: TROUPE_SOAK sets the duration ("3m").
func TestSoak(t *testing.T) {
	t.Parallel()
	length := 3 * time.Second
	if text := os.Getenv("TROUPE_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	s := newStage(t)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 6, 5) }()

	kills := 0
	for ; ctx.Err() == nil; kills++ {
		victim := s.spawn(childConfig{
			Holder: "victim-" + strconv.Itoa(kills), Batch: 50, Lease: 500 * time.Millisecond,
		})
		select {
		case <-time.After(900*time.Millisecond + time.Duration(kills%7)*37*time.Millisecond):
		case <-ctx.Done():
		}
		victim.signal(syscall.SIGKILL)
		require.Equal(t, syscall.SIGKILL, victim.wait(waitLimit).Signal())
	}
	committed := <-loaded
	s.start(s.config())
	v := judge(s.collect(total(committed), s.topic), committed)
	t.Logf("%d rows, %d kills in %s", total(committed), kills, length)
	v.requireSound(t)
}

// waitLimit is for waits for another process, which has to start first.
const waitLimit = 3 * time.Minute
