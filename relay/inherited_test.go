package relay_test

import (
	"testing"
	"time"
)

// A table inherits from a table with a mapping while its relay streams. The log has the rows of the new table under its own name, or not at all.
// So the relay ends the stream, and is not ready: Ready names the cause.
func TestATableThatInheritsWhileTheRelayStreamsIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Lease = time.Second
	r := s.start(cfg)
	s.waitTable(r)
	s.exec("CREATE TABLE public.outbox_of_may () INHERITS (public.outbox)")
	waitUnready(t, r, "table public.outbox", "inherit")
}
