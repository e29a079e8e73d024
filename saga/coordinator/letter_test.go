package coordinator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// logged holds the text of a log.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) line(with string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, with) {
			return line
		}
	}
	return ""
}

// lines returns the number of lines with a text.
func (l *logged) lines(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), with)
}

// TestADeadLetterOfAnEventThatIsTriedAgainIsLoggedIfItParksNoSaga: it cannot be read, or there is no deadline for it.
func TestADeadLetterOfAnEventThatIsTriedAgainIsLoggedIfItParksNoSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	log := &logged{}
	p := f.participant("order", f.pool)
	_, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{order(t)}, Log: zerolog.New(log),
	})
	require.NoError(t, err)
	f.run(p, f.pool)
	f.publishOwn("Waits", "o-1", "{}") // until the topic is local
	answer, err := json.Marshal(saga.Event{Kind: saga.Answered, Step: "payment", Operation: "forward"})
	require.NoError(t, err)
	for payload, reason := range map[string]string{
		"{": "its payload cannot be read",
		`{"saga":"order/o-1","event":{"kind":7}}`:             "its event cannot be read",
		`{"saga":"order/o-1","event":` + string(answer) + `}`: "its deadline is gone",
	} {
		letter := envelope.NewID()
		const insert = `INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
			VALUES ($1, $2, 'h', 'permanent', 'e', 1, 't', gen_random_uuid(), 0, 0, '', $3, $4, 'troupe.RetryEvent', 'c', now(), now())`
		_, err := f.pool.Exec(t.Context(), insert, letter, p.Group(), []byte(payload), letter)
		require.NoError(t, err)
		const publish = `INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, 'o-1', 'troupe.Exhausted', $2, '{"ce_outcome": "exhausted"}')`
		_, err = f.pool.Exec(t.Context(), publish, f.name+".order.events",
			fmt.Appendf(nil, `{"dead_letter_id":%q,"type":"troupe.RetryEvent","handler":"%s/retry-event"}`, letter, p.Group()))
		require.NoError(t, err)
		var line string
		testkit.Wait(t, "a line about the dead letter", func() (bool, error) {
			line = log.line(letter)
			return line != "", nil
		})
		require.Contains(t, line, `"level":"warn"`)
		require.Contains(t, line, reason)
	}
}

// TestTheDeletedDeadLetterOfAnAnswerIsLogged: no saga can be parked, since only the dead letter named it.
func TestTheDeletedDeadLetterOfAnAnswerIsLogged(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	log := &logged{}
	p := f.participant("order", f.pool)
	_, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{order(t)}, Log: zerolog.New(log),
	})
	require.NoError(t, err)
	f.run(p, f.pool)
	exhausted := func(group string) (letter string) {
		letter = envelope.NewID()
		const publish = `INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, 'o-1', 'troupe.Exhausted', $2, '{"ce_outcome": "exhausted"}')`
		_, err := f.pool.Exec(t.Context(), publish, f.name+".order.events",
			fmt.Appendf(nil, `{"dead_letter_id":%q,"type":"PaymentCharged","handler":"%s/PaymentCharged"}`, letter, group))
		require.NoError(t, err)
		return letter
	}
	f.publishOwn("Waits", "o-1", "{}") // until the topic is local
	other, own := exhausted("reports"), exhausted(p.Group())
	var line string
	testkit.Wait(t, "a line about the dead letter", func() (bool, error) {
		line = log.line(own)
		return line != "", nil
	})
	require.Contains(t, line, `"level":"warn"`)
	require.Contains(t, line, `"message_id":"`)
	require.Empty(t, log.line(other), "the event is about a dead letter of another group")
}

// TestADeadLetterThatParksNoSagaIsLoggedAfterTheCommit checks both warnings with a transaction whose first commit fails, so that it runs twice.
func TestADeadLetterThatParksNoSagaIsLoggedAfterTheCommit(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ kind, warning string }{
		"a deleted dead letter":                {"PaymentCharged", "a dead letter was deleted before its exhausted event came"},
		"a dead letter that cannot be decoded": {"troupe.RetryEvent", "its payload cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			log := &logged{}
			p := f.participant("order", f.pool)
			_, err := coordinator.New(t.Context(), coordinator.Config{
				Participant: p, Pool: f.pool, Definitions: []*saga.Definition{order(t)}, Log: zerolog.New(log),
			})
			require.NoError(t, err)
			_, err = f.pool.Exec(t.Context(), `
				CREATE SEQUENCE commits;
				CREATE FUNCTION refuse_first() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
					IF nextval('commits') = 1 THEN
						RAISE EXCEPTION 'not now' USING ERRCODE = 'serialization_failure';
					END IF;
					RETURN NULL;
				END $$;
				CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON troupe.local_work DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
				WHEN (NEW.type = 'troupe.Exhausted' AND NEW.status = 'done') EXECUTE FUNCTION refuse_first()`)
			require.NoError(t, err)
			f.run(p, f.pool)
			letter := envelope.NewID()
			if of.kind == "troupe.RetryEvent" {
				const insert = `INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
					headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
					VALUES ($1, $2, 'h', 'permanent', 'e', 1, 't', gen_random_uuid(), 0, 0, '', '{', $3, 'troupe.RetryEvent', 'c', now(), now())`
				_, err := f.pool.Exec(t.Context(), insert, letter, p.Group(), letter)
				require.NoError(t, err)
			}
			f.publishOwn("Waits", "o-2", "{}") // until the topic is local
			const publish = `INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, 'o-1', 'troupe.Exhausted', $2, '{"ce_outcome": "exhausted"}')`
			_, err = f.pool.Exec(t.Context(), publish, f.name+".order.events",
				fmt.Appendf(nil, `{"dead_letter_id":%q,"type":%q,"handler":"%s/h"}`, letter, of.kind, p.Group()))
			require.NoError(t, err)
			f.waitCount("the event to be handled", 1, "SELECT count(*) FROM troupe.local_work WHERE type = 'troupe.Exhausted' AND status = 'done'")
			require.Equal(t, 2, f.count("SELECT last_value FROM commits"))
			testkit.Wait(t, "the warning", func() (bool, error) { return log.lines(of.warning) > 0, nil })
			require.Equal(t, 1, log.lines(of.warning), "a transaction that was rolled back has logged it too")
		})
	}
}
