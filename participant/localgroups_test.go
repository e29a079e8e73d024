package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// audits returns a participant of a third hop, which consumes the hop's events too.
func (s *stage) audits() *participant.Participant {
	p := s.new(func(c *participant.Config) { c.Hop = topics.MustHop(s.hop.Flow(), "audit") })
	participant.On(p, s.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error {
		_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('audit', $1, $2)", e.Body.N, e.Attempt)
		return err
	})
	return p
}

// ready waits until p is ready.
func (s *stage) ready(p *participant.Participant) {
	s.t.Helper()
	testkit.Wait(s.t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}

// TestWritersGoOnWhileALaterGroupGetsTheEarlierEvents stops the copy of the earlier events, which may be many, at one of them.
func TestWritersGoOnWhileALaterGroupGetsTheEarlierEvents(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	makeLocal := func(group string) error {
		_, err := s.pool.Exec(t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Events(), group)
		return err
	}
	require.NoError(t, makeLocal("first"))
	s.emit("a", 1)
	s.emit("a", 2)
	other, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer other.Rollback(context.Background())
	_, err = other.Exec(t.Context(), `
		INSERT INTO troupe.local_work (position, consumer_group, id, topic, type, headers, created_at, hold_key)
		SELECT max(position), 'later', gen_random_uuid(), 't', 'T', '{}', now(), '' FROM troupe.local_work`)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- makeLocal("later") }()
	testkit.Wait(t, "the copy to wait", func() (waits bool, err error) {
		err = s.pool.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%make_local%' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid())`).Scan(&waits)
		return waits, err
	})
	writer, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer writer.Rollback(context.Background())
	_, err = writer.Exec(t.Context(), "LOCK TABLE troupe.outbox IN ROW EXCLUSIVE MODE NOWAIT")
	require.NoError(t, err, "a writer is blocked")
	require.NoError(t, writer.Rollback(t.Context()))
	s.emit("a", 3) // the copy under the lock has it
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, <-ended)
	s.emit("a", 4)
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.local_work WHERE consumer_group = 'later'"))
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.local_work WHERE consumer_group = 'first'"))
}

// TestAGroupForWhichATopicBecomesLocalLaterGetsTheEarlierEvents starts the services of a flow one after the other, as a rollout does:
// events that were written before the second one made their topic local are for it, too, as in Kafka.
func TestAGroupForWhichATopicBecomesLocalLaterGetsTheEarlierEvents(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.emit("a", 1) // before the topic is local for any group
	s.start(s.listens(noteEvent))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'events'")
	s.emit("a", 2)
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'events'")
	s.start(s.audits())
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'audit'")
	s.emit("a", 3)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'audit' AND n = 3")
	s.waitCount(3, "SELECT count(*) FROM done WHERE key = 'events'")
	require.Equal(t, 3, s.count("SELECT count(*) FROM done WHERE key = 'audit'"))
	require.Zero(t, s.count(`SELECT count(*)
		FROM (SELECT n, lag(n) OVER (ORDER BY position) AS before FROM done WHERE key = 'audit') AS rows
		WHERE n <> before + 1`))
}

// TestAGroupThatComesToALocalTopicAfterAnHourGetsTheEventsFromThenOn checks that it gets no part of the earlier ones.
func TestAGroupThatComesToALocalTopicAfterAnHourGetsTheEventsFromThenOn(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeEventsLocal()
	s.emit("a", 1)
	audits := s.audits()
	s.start(audits)
	s.ready(audits)
	s.emit("a", 2)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'audit' AND n = 2")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE key = 'audit'"))
}

// TestARenamedGroupDoesNotRunTheCommandsOfItsFormerName checks commands: a topic of them has one group, and another one is a new name.
func TestARenamedGroupDoesNotRunTheCommandsOfItsFormerName(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p := s.new()
	participant.Handle(p, count)
	stop := s.start(p)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()
	renamed := s.new(func(c *participant.Config) { c.Group = "renamed" })
	participant.Handle(renamed, count)
	s.start(renamed)
	s.ready(renamed)
	s.write("a", Count{N: 2})
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 1"))
}

// TestATopicIsNotEndedWhileAMemberConsumesIt checks the members of each group: later events would go to Kafka, where none of them reads.
func TestATopicIsNotEndedWhileAMemberConsumesIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	end := func() error {
		_, err := s.pool.Exec(t.Context(), "SELECT troupe.end_local($1)", s.hop.Events())
		return err
	}
	listens, audits := s.listens(noteEvent), s.audits()
	stop := s.start(listens)
	s.ready(listens)
	stopAudits := s.start(audits)
	s.ready(audits)
	require.ErrorContains(t, end(), fmt.Sprintf("members of %s, %s consume topic %s: stop them first",
		audits.Group(), listens.Group(), s.hop.Events()))
	s.emit("a", 1)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'events'")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'audit'")
	stop()
	require.ErrorContains(t, end(), audits.Group())
	stopAudits()
	later := s.listens(nil) // a version that has dropped the handler
	s.start(later)
	s.ready(later)
	testkit.Wait(t, "the topic to be returned, once the sessions have ended", func() (bool, error) { err := end(); return err == nil, err })
}

// TestATopicThatIsNotLocalAnyMoreIsMadeLocalAgain sets the database back to before the topic was made local, as a failover to a standby
// that lagged does, or a restore: a member that runs on would wait for messages that go to Kafka.
func TestATopicThatIsNotLocalAnyMoreIsMadeLocalAgain(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	var log safeBuffer
	p := s.new(func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	s.ready(p)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	s.forgetLocal(s.hop.Commands())
	s.write("a", Count{N: 2})
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	s.write("a", Count{N: 3})
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	require.Contains(t, log.String(), "not local any more")
}

// forgetLocal sets the database back to before the topic was made local.
func (s *stage) forgetLocal(topic string) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `DO $$ BEGIN
		DELETE FROM troupe.local_topics WHERE topic = '`+topic+`';
		EXECUTE format('DROP TRIGGER %I ON troupe.outbox', 'local_' || md5('`+topic+`'));
	END $$`)
	require.NoError(s.t, err)
}

// TestATopicThatIsLocalForAnotherGroupIsReported checks a participant with Brokers: it consumes a topic on which Kafka gets nothing more.
func TestATopicThatIsLocalForAnotherGroupIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	local := s.listens(noteEvent, func(c *participant.Config) { c.Local, c.Brokers = true, nil })
	s.start(local)
	s.ready(local)
	var log safeBuffer
	hop := topics.MustHop(s.hop.Flow(), "audit")
	p := s.new(func(c *participant.Config) { c.Hop, c.Log = hop, zerolog.New(&log) })
	participant.On(p, s.hop, noteEvent)
	s.start(p)
	waitFor(t, "a log line", func() bool {
		return strings.Contains(log.String(), `"topic":"`+s.hop.Events()+`","groups":"`+local.Group()+`"`)
	})
}
