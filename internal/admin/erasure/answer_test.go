package erasure_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

type (
	Register struct {
		Name string `json:"name"`
	}
	Registered struct {
		Name string `json:"name"`
	}
)

// TestARepeatedCommandWhoseAnswerIsErasedGetsItWithoutContent, and has no second effect; the message itself is a duplicate.
func TestARepeatedCommandWhoseAnswerIsErasedGetsItWithoutContent(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("CREATE TABLE registered (name text)")
	p, err := participant.New(participant.Config{Pool: s.pool, Hop: topics.MustHop(testkit.Flow(t), "members"), Local: true, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Register]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO registered VALUES ($1)", c.Body.Name)
		return participant.Succeed(Registered(c.Body)), err
	})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ran) }()
	send := func(id, name string) {
		s.exec(`INSERT INTO troupe.outbox (id, topic, key, type, payload, headers)
			VALUES ($1, $2, 'c-1', 'Register', convert_to($3, 'UTF8'), '{"ce_idempotencykey": "c-1"}')`, id, p.Hop().Commands(), fmt.Sprintf(`{"name": %q}`, name))
	}
	answers := func(n int) (payloads []*string) {
		testkit.Wait(t, "answers", func() (bool, error) {
			rows, err := s.pool.Query(t.Context(), "SELECT convert_from(payload, 'UTF8') FROM troupe.outbox WHERE topic = $1 AND headers ->> 'ce_outcome' = 'success'", p.Hop().Events())
			if err != nil {
				return false, err
			}
			payloads, err = pgx.CollectRows(rows, pgx.RowTo[*string])
			return len(payloads) == n, err
		})
		s.exec("DELETE FROM troupe.outbox") // as a relay
		return payloads
	}
	const first, second = "019aa6f0-7c1d-4d3a-9d0b-6f3b1c2d4e61", "019aa6f0-7c1d-4d3a-9d0b-6f3b1c2d4e62"
	send(first, "Ann")
	require.Equal(t, `{"name":"Ann"}`, *answers(1)[0])
	s.exec("UPDATE troupe.local_work SET ended_at = ended_at - interval '1 hour'")
	s.erase("c-1")
	require.Equal(t, []string{"Ann"}, s.list("SELECT name FROM registered"))

	send(second, "Ann")
	require.Equal(t, []*string{nil}, answers(1))
	send(first, "Ann")
	testkit.Wait(t, "the message to be passed over", func() (bool, error) {
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.local_work WHERE id = $1 AND status = 'done'", first).Scan(&n)
		return n == 1, err
	})
	require.Equal(t, []string{"Ann"}, s.list("SELECT name FROM registered"))
	require.Empty(t, s.list("SELECT error FROM troupe.dead_letters"))
}
