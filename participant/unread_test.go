package participant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// deleteTo deletes the messages of the commands topic's first partition before an offset, as the retention of the topic does.
func (s *stage) deleteTo(offset int64) {
	s.t.Helper()
	to := make(kadm.Offsets)
	to.AddOffset(s.hop.Commands(), 0, offset, -1)
	deleted, err := kadm.NewClient(s.client).DeleteRecords(s.t.Context(), to)
	require.NoError(s.t, err)
	require.NoError(s.t, deleted.Error())
}

// TestMessagesThatAreDeletedBeforeTheyAreReadAreLogged deletes messages while no member runs. The next member logs how many, whether others
// come or not. Messages that were handled may be deleted.
func TestMessagesThatAreDeletedBeforeTheyAreReadAreLogged(t *testing.T) {
	t.Parallel()
	const line = "messages were deleted from the topic before they were read"
	s := newStage(t)
	s.provision(1)
	begin := func() (log *safeBuffer, p *participant.Participant, stop func()) {
		log = &safeBuffer{}
		p = s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(log) })
		p.Patience(100 * time.Millisecond)
		participant.Handle(p, count)
		return log, p, s.start(p)
	}
	log, _, stop := begin()
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	waitFor(t, "the offset", func() bool { return s.committed(0) == 1 })
	stop()
	require.NotContains(t, log.String(), line)

	s.send(s.command("a", Count{N: 2}), s.command("a", Count{N: 3}))
	s.deleteTo(3)
	log, _, stop = begin()
	waitFor(t, "the line, although no message comes", func() bool { return strings.Contains(log.String(), line) })
	require.Contains(t, log.String(), `"from":1,"offsets":2`)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 4")
	require.Equal(t, 1, strings.Count(log.String(), line), log.String())
	waitFor(t, "the offset", func() bool { return s.committed(0) == 4 })
	stop()

	s.send(s.command("a", Count{N: 5}), s.command("a", Count{N: 6}))
	s.deleteTo(5)
	log, _, stop = begin()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 6")
	require.Equal(t, 1, strings.Count(log.String(), line), log.String())
	require.Contains(t, log.String(), `"from":4,"offsets":1`)
	waitFor(t, "the offset", func() bool { return s.committed(0) == 6 })
	stop()

	s.deleteTo(6)
	log, p, _ := begin()
	testkit.Wait(t, "a member that has looked for the end", func() (bool, error) {
		of := partitionOf(p, s.hop.Commands())
		return of.Next == 6 && of.End == 6, p.Ready()
	})
	require.NotContains(t, log.String(), line)
}

// TestReadySaysThatATransactionHangs checks it for messages that cannot be read, since a producer has not ended its transaction. The end of the
// readable log, and so the lag, does not show them.
func TestReadySaysThatATransactionHangs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	p.Patience(100 * time.Millisecond)
	p.OpenLimit(time.Millisecond)
	participant.Handle(p, count)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")

	foreign, err := kafka.NewClient(s.brokers, kgo.TransactionalID(s.hop.String()))
	require.NoError(t, err)
	t.Cleanup(foreign.Close)
	require.NoError(t, foreign.BeginTransaction())
	require.NoError(t, foreign.ProduceSync(t.Context(), kafka.Record(s.command("b", Count{N: 1}))).FirstErr())
	s.send(s.command("a", Count{N: 2}))
	testkit.Wait(t, "a member that is not ready", func() (bool, error) {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), "a producer's transaction is open") &&
			strings.Contains(err.Error(), "2 messages from offset 1 on cannot be read"), nil
	})
	s.waitCount(1, "SELECT count(*) FROM done")
	require.NoError(t, foreign.EndTransaction(t.Context(), kgo.TryCommit))
	s.waitCount(3, "SELECT count(*) FROM done")
	testkit.Wait(t, "a ready member", func() (bool, error) { err := p.Ready(); return err == nil, err })
}
