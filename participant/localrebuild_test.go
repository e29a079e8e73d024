package participant_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// TestLocalWorkOfARebuildHasATransactionOfItsOwn: the dead letter of a rebuild is redriven after its topic has become local. What its handler
// writes is discarded, as in the rebuild, and the answers to other messages are not. A writer may also invent the header of such a message.
func TestLocalWorkOfARebuildHasATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, rebuilds := range map[string]string{
		"redriven":       "INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit, finished_at) VALUES ($1, 1, '{Paid}', 'epoch', false, now())",
		"a forged count": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLocalStage(t)
			s.makeLocal()
			bank := topics.MustHop(s.hop.Flow(), "bank")
			s.exec("SELECT troupe.make_local($1, $2)", bank.Events(), s.hop.String())
			redriven := 0
			if rebuilds != "" {
				s.exec(rebuilds, s.hop.String())
				redriven = 1
			}
			p := s.new(func(c *participant.Config) { c.Batch, c.Concurrency = 100, 1 })
			participant.Handle(p, count)
			participant.On(p, bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
				if _, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", string(e.Message.Key), e.Body.N, e.Attempt); err != nil {
					return err
				}
				return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: s.hop.Events(), Key: "of the rebuild", Body: Counted{}})
			})

			// Entries of a claim are in the order of the hashes of their keys: the rebuild's is the first one.
			keys := make([]string, 60)
			for n := range keys {
				keys[n] = fmt.Sprintf("k-%d", n)
			}
			slices.SortFunc(keys, func(a, b string) int {
				first, second := sha256.Sum256([]byte("key "+a)), sha256.Sum256([]byte("key "+b))
				return slices.Compare(first[:], second[:])
			})
			for _, key := range keys[1:] {
				s.write(key, Count{N: 1})
			}
			s.exec(`INSERT INTO troupe.outbox (topic, key, type, headers, payload) VALUES ($1, $2, 'Paid', $3, $4)`, bank.Events(), keys[0],
				map[string]string{deadletter.HeaderRedrive: fmt.Sprint(1<<deadletter.GenerationShift + 1), deadletter.HeaderRedriveGroup: s.hop.String()}, marshal(Paid{N: 1}))
			s.start(p)
			s.waitCount(len(keys), "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
			require.Equal(t, len(keys)-1+redriven, s.count("SELECT count(*) FROM done"))
			events := s.entries(s.hop.Events())
			require.Len(t, events, len(keys)-1, "each command has its answer, and the message of the rebuild has written nothing")
			require.False(t, slices.ContainsFunc(events, func(m envelope.Message) bool { return string(m.Key) == "of the rebuild" }))
		})
	}
}
