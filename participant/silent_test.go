package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg/silenttest"
	"github.com/troupe-go/troupe/participant"
)

// TestAStatementWithoutAnAnswerIsTriedAgain lets the server fall silent at a statement that no handler waits for. Without a limit its partition,
// or its key, would wait for ever.
func TestAStatementWithoutAnAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the lease of a partition":         "Raises the term by a random number",
		"the marks of a crashed owner":     "FROM troupe.started",
		"the held keys of a partition":     "SELECT DISTINCT ON (hold_key)",
		"the first messages of a held key": "Returns the first messages of a held",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			s.exec("INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'crashed')", s.hop.String(), s.hop.Commands())
			var server silenttest.Server
			p := s.new(onePartition, func(c *participant.Config) { c.Pool = server.Pool(t, s.pool) })
			p.StatementLimit(time.Second)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Attempt == 1 {
					return participant.Outcome{}, errAsked
				}
				return count(ctx, tx, c)
			})
			server.At(text)
			s.start(p)
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			require.Equal(t, 1, server.Fell())
		})
	}
}

// TestAMemberOfLocalWorkWhoseSessionEndedUnseenTakesAnotherNumber checks that the locks of a member are taken again on the server that its
// statements reach. Without them others would take it for dead, and its topics for unconsumed.
func TestAMemberOfLocalWorkWhoseSessionEndedUnseenTakesAnotherNumber(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	var server silenttest.Server
	p := s.new(func(c *participant.Config) { c.Pool = server.Pool(t, s.pool) })
	participant.Handle(p, count)
	s.start(p)
	const locks = `FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid::bigint = $1 AND objsubid = 2`
	s.waitCount(1, "SELECT count(*) "+locks, participant.MemberClass)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")

	former := s.count("SELECT objid::bigint "+locks, participant.MemberClass)
	server.Listeners()
	require.Equal(t, 1, s.count("SELECT count(pg_terminate_backend(pid)) "+locks, participant.MemberClass))
	s.waitCount(1, "SELECT count(*) "+locks+" AND objid::bigint <> $2", participant.MemberClass, former)
	s.waitCount(1, "SELECT count(*) "+locks, participant.TopicClass)
	s.write("a", Count{N: 2})
	s.waitCount(2, "SELECT count(*) FROM done")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.local_work WHERE crashes > 0"))
}
