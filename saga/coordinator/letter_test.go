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
