package participant_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestDeadlinesOfManyScopesAreTwoStatements checks that planned calls have the same result as single ones.
func TestDeadlinesOfManyScopesAreTwoStatements(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	of := func(scope string, n int) participant.Deadline {
		return participant.Deadline{Name: overdueName, Scope: scope, Key: "key of " + scope, At: at.Add(time.Duration(n) * time.Minute), Body: Overdue{N: n}}
	}
	require.NoError(t, s.schedule(p, of("was 1", 1), of("was 2", 2), of("was 3", 3), of("was 4", 4), of("was 5", 5)))

	var ds participant.Deadlines
	plan := func(d participant.Deadline) { require.NoError(t, p.Plan(t.Context(), &ds, d)) }
	cancel := func(scope string) { require.NoError(t, p.PlanCancel(t.Context(), &ds, overdueName, scope)) }
	kept := of("was 5", 50)
	kept.Keep = true
	plan(of("new 1", 10))
	plan(of("new 2", 20))
	plan(of("new 2", 21)) // the last one counts
	plan(of("new 3", 30))
	cancel("new 3")
	cancel("was 1")
	cancel("was 2")
	cancel("was 3")
	plan(of("was 3", 33))
	plan(of("was 4", 44)) // instead of the existing one
	plan(kept)
	require.ErrorContains(t, p.Plan(t.Context(), &ds, participant.Deadline{Name: overdueName, Scope: "new 4"}), "no body")
	require.ErrorContains(t, p.PlanCancel(t.Context(), &ds, "unknown", "new 1"), "no handler expects it")
	var b pgx.Batch
	p.QueueDeadlines(&b, &ds)
	require.Equal(t, 3, b.Len(), "one for the cancelled, one for the scheduled deadlines, and the one with Keep")
	require.NoError(t, s.pool.SendBatch(t.Context(), &b).Close())

	rows, err := s.pool.Query(t.Context(), "SELECT scope, convert_from(payload, 'UTF8')::jsonb ->> 'n', due_at, key, headers ->> '__troupe.deadline.scope' FROM troupe.deadlines")
	require.NoError(t, err)
	got := map[string]string{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (_ struct{}, err error) {
		var scope, n, key, header string
		var due time.Time
		err = row.Scan(&scope, &n, &due, &key, &header)
		require.Equal(t, []string{"key of " + scope, scope}, []string{key, header})
		got[scope] = fmt.Sprint(n, " after ", due.Sub(at).Minutes())
		return struct{}{}, err
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"new 1": "10 after 10", "new 2": "21 after 21", "was 3": "33 after 33", "was 4": "44 after 44", "was 5": "5 after 5",
	}, got)

	var none pgx.Batch
	p.QueueDeadlines(&none, &ds)
	require.Zero(t, none.Len(), "they were queued")
}
