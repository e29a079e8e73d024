package participant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestAnAnswerHasOneIDWhicheverRecordItsCommandHas answers a command from Kafka, from a retry topic and from local work. After each, the
// database is as it was before: it was set back.
func TestAnAnswerHasOneIDWhicheverRecordItsCommandHas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`
		CREATE TABLE answers (id uuid, topic text);
		CREATE FUNCTION note_answer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO answers VALUES (NEW.id, NEW.topic); RETURN NEW; END $$;
		CREATE TRIGGER answer AFTER INSERT ON troupe.outbox FOR EACH ROW EXECUTE FUNCTION note_answer();`)
	m := s.command("a", Count{N: 1})
	answer := func(fails int, change func(*participant.Config)) string {
		p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 }, change)
		var options []participant.HandlerOption
		if fails > 0 {
			options = append(options, participant.RetryTopics(time.Second))
		}
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if c.Attempt <= fails {
				return participant.Outcome{}, errors.New("not yet")
			}
			return count(ctx, tx, c)
		}, options...)
		stop := s.start(p)
		s.waitCount(1, "SELECT count(*) FROM done")
		stop()
		var id string
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT id::text FROM answers WHERE topic = $1", s.hop.Events()).Scan(&id))
		s.exec("DELETE FROM done; DELETE FROM answers; " + forget)
		return id
	}
	kafka := func(*participant.Config) {}
	s.provision(1)
	s.send(m)
	id := answer(0, kafka)

	relayed := s.relayed()
	s.send(m)
	require.Equal(t, id, answer(1, kafka), "from a retry topic")
	relayed()

	s.makeLocal()
	s.exec(`INSERT INTO troupe.outbox (id, topic, key, type, payload, headers)
		VALUES ($1, $2, 'a', 'Count', $3, '{"ce_source": "test"}')`, m.ID, m.Topic, m.Payload)
	require.Equal(t, id, answer(0, func(c *participant.Config) { c.Local, c.Brokers = true, nil }), "from local work")
}
