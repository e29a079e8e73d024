package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestOnAllTakesThePlaceOfAnOptionalOneWhileTheParticipantRuns: the function of ObserveEvents gets the events then. The optional one gives way if it
// comes later, too.
func TestOnAllTakesThePlaceOfAnOptionalOneWhileTheParticipantRuns(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"the optional one is first": false, "the optional one is last": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			other := []topics.Hop{topics.MustHop(s.hop.Flow(), "other")}
			s.topic(other[0].Events())
			p := s.new(onePartition)
			participant.Handle(p, count)
			calls := make(chan string, 10)
			p.Extension().ObserveEvents(func(m envelope.Message) bool { return m.Topic == other[0].Events() }, func(context.Context, pgx.Tx, envelope.Message) error {
				calls <- "the observer"
				return nil
			})
			s.start(p)
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			own := func() {
				participant.OnAll(p, other, func(context.Context, pgx.Tx, []participant.Taken) error { calls <- "its own"; return nil })
			}
			if later {
				own()
			}
			p.Extension().OnAllOptional(other, func(context.Context, pgx.Tx, []participant.Taken) error { calls <- "the optional one"; return nil })
			if !later {
				own()
			}
			m := s.command("b", Count{N: 1})
			m.Topic, m.Outcome = other[0].Events(), envelope.Success
			s.send(m)
			require.Equal(t, []string{"the observer", "its own"}, []string{<-calls, <-calls})
		})
	}
}

// TestAMemberOfLocalWorkRunsWithoutAnOptionalTopicThatItMayNotMakeLocal: it consumes the topic once the owner of Troupe's tables has made it local.
func TestAMemberOfLocalWorkRunsWithoutAnOptionalTopicThatItMayNotMakeLocal(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, pool: testkit.Database(t), hop: topics.MustHop(testkit.Flow(t), "payment"), local: true}
	s.exec(counters)
	role := grantstest.New(t, s.pool, grants.Participant, grants.LocalWork)
	s.exec("GRANT ALL ON counters, done TO " + role.Name)
	s.makeLocal()
	other := topics.MustHop(s.hop.Flow(), "other")
	var log safeBuffer
	p := s.new(func(c *participant.Config) { c.Pool, c.Log = role.Pool(), zerolog.New(&log) })
	participant.Handle(p, count)
	came := make(chan struct{}, 10)
	p.Extension().OnAllOptional([]topics.Hop{other}, func(context.Context, pgx.Tx, []participant.Taken) error { came <- struct{}{}; return nil })
	s.start(p)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	statement := "SELECT troupe.make_local('" + other.Events() + "', '" + s.hop.String() + "')"
	require.Contains(t, log.String(), statement)
	s.exec(statement)
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'a', 'Count', '{}')", other.Events())
	<-came
}

// TestAHandlerInPlaceOfAnOptionalOneMakesItsTopicLocal: the role could not make the topic local when the member started, and may do so now.
func TestAHandlerInPlaceOfAnOptionalOneMakesItsTopicLocal(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, pool: testkit.Database(t), hop: topics.MustHop(testkit.Flow(t), "payment"), local: true}
	s.exec(counters)
	role := grantstest.New(t, s.pool, grants.Participant, grants.LocalWork)
	s.exec("GRANT ALL ON counters, done TO " + role.Name)
	s.makeLocal()
	other := []topics.Hop{topics.MustHop(s.hop.Flow(), "other")}
	p := s.new(func(c *participant.Config) { c.Pool = role.Pool() })
	participant.Handle(p, count)
	p.Extension().OnAllOptional(other, func(context.Context, pgx.Tx, []participant.Taken) error { return nil })
	s.start(p)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")
	s.exec("GRANT EXECUTE ON FUNCTION troupe.make_local(text, text) TO " + role.Name)
	came := make(chan struct{}, 10)
	participant.OnAll(p, other, func(context.Context, pgx.Tx, []participant.Taken) error { came <- struct{}{}; return nil })
	s.waitCount(1, "SELECT count(*) FROM troupe.local_topics WHERE topic = $1", other[0].Events())
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'a', 'Count', '{}')", other[0].Events())
	<-came
}
