package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// The log holds a position twice after TRUNCATE … RESTART IDENTITY.
func TestOnePositionTwiceInABatchOfRefusedRowsHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "good", "0")
	s.waitProven()
	require.NoError(t, r.stop())
	s.exec("TRUNCATE troupe.outbox RESTART IDENTITY")
	s.insert(s.flow+".late.commands", "a", "of the table before")
	s.exec("TRUNCATE troupe.outbox RESTART IDENTITY")
	s.insert(s.flow+".late.commands", "b", "of the table now")
	s.insert(s.topic, "good", "1")
	s.start(cfg)
	require.Equal(t, []string{"0", "1"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(2)))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_trouble t JOIN troupe.outbox o USING (position, id)"))
	late := s.createTopic("late", 1)
	require.Equal(t, []string{"of the table now"}, values(testkit.Consume(t, s.brokers, late).WaitN(1)))
}
