package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants/grantstest"
)

// Every role that may connect may write messages to the log, with any prefix and of up to a gigabyte. They stop no relay.
func TestMessagesInTheLogThatOthersWriteStopNoRelay(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	stranger := grantstest.New(t, s.pool).Pool()
	own := s.start(s.wal())
	s.waitStream()
	topic := s.eventTopic("order")
	mapped := s.start(s.mapped("public.outbox", s.routed(nil)))
	s.waitTable(mapped)
	write := func(prefix string, size int) {
		for _, transactional := range []bool{false, true} {
			_, err := stranger.Exec(t.Context(), "SELECT pg_logical_emit_message($1, $2, repeat('x', $3))", transactional, prefix, size)
			require.NoError(t, err)
		}
	}
	for _, prefix := range []string{"", "troupe", "troupe.pause", strings.Repeat("p", 256), strings.Repeat("p", 257), strings.Repeat("é", 200_000)} {
		write(prefix, 0)
		write(prefix, 300_000)
	}
	write("troupe", 20<<20)
	s.insert(s.topic, "k", "1")
	require.Equal(t, []string{"1"}, values(s.gather(1, s.topic)))
	s.insertEvent("order", "k", "1")
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
	require.NoError(t, own.Ready())
	require.NoError(t, mapped.Ready())
}
