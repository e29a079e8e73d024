package watch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/pg/silenttest"
)

// TestTheWatcherGoesOnAfterAServerFellSilent lets the database server fall silent once, where records are stored or judged.
func TestTheWatcherGoesOnAfterAServerFellSilent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"at the start": "INSERT INTO troupe.watch_offsets", "at a judgement": "INSERT INTO troupe.watch_marks", "at its end": "SET seen_at",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.send(order("o-1")...)
			var server silenttest.Server
			server.At(text)
			config := s.config()
			config.Pool = server.Pool(t, s.pool)
			w, err := watch.New(config)
			require.NoError(t, err)
			w.StepLimit(2 * time.Second)
			s.run(w)
			s.judged()
			require.Equal(t, 1, server.Fell())
			require.Len(t, s.show("o-1").Messages, len(order("o-1")))
		})
	}
}
