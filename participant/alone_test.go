package participant_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// Call is a command whose handler calls another service.
type Call struct {
	N int `json:"n"`
}

// aloneAmongOthers registers a handler that is never in a batch, and one that is, and counts their runs by the kind of
// transaction.
func aloneAmongOthers(s *stage) (p *participant.Participant, ran func() (together, calls, callsTogether int)) {
	var mu sync.Mutex
	var together, calls, callsTogether int
	p = s.new(onePartition, func(c *participant.Config) {
		c.Batch = 100
		c.Hooks.BeforeHandler = func(d participant.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			if d.Batch > 1 {
				together++
			}
			if d.Message.Type == "Call" {
				calls++
				if d.Batch > 1 {
					callsTogether++
				}
			}
		}
	})
	participant.Handle(p, count)
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Call]) (participant.Outcome, error) {
		return participant.Succeed(Counted{}), nil
	}, participant.Alone())
	return p, func() (int, int, int) {
		mu.Lock()
		defer mu.Unlock()
		return together, calls, callsTogether
	}
}

func TestAHandlerMayStayOutOfBatches(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p, ran := aloneAmongOthers(s)
	s.provision(1)
	var all []envelope.Message
	for _, m := range s.commands(30, 2) {
		call := s.command(string(m.Key), Count{})
		call.Type = "Call"
		all = append(all, m, s.command("x"+string(m.Key), Count{N: 1}), call)
	}
	s.send(all...)
	s.start(p)
	s.waitCount(180, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events())
	together, calls, callsTogether := ran()
	require.Positive(t, together, "others go on sharing a transaction")
	require.Equal(t, 60, calls)
	require.Zero(t, callsTogether)
}

func TestAHandlerMayStayOutOfBatchesOfLocalWork(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p, ran := aloneAmongOthers(s)
	s.makeLocal()
	for range 20 {
		s.write("a", Count{N: 1})
		s.write("b", Count{N: 1})
		_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'c', 'Call', '{}')", s.hop.Commands())
		require.NoError(t, err)
	}
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	s.waitCount(60, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events())
	together, calls, callsTogether := ran()
	require.Positive(t, together, "others go on sharing a transaction")
	require.Equal(t, 20, calls)
	require.Zero(t, callsTogether)
}
