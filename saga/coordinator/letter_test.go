package coordinator_test

import (
	"bytes"
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
