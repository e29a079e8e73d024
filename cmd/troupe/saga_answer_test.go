package main

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// begunLoan starts a loan, which waits for an operator. No coordinator runs it.
func begunLoan(t testing.TB, pool *pgxpool.Pool, key string) {
	t.Helper()
	limit := int64(1_000_000)
	d, err := saga.Define(saga.Spec{
		Saga: "loan", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "cents": saga.Int},
		Steps: []saga.Step{{
			Name: "approval",
			Success: []saga.Answer{{Event: "LoanApproved", Hop: "desk", Set: saga.Mapping{"cents": "event.cents"}, Form: &saga.Form{
				Title: "Approve the loan", Fields: []saga.Field{
					{Name: "cents", Type: saga.Int, Max: &limit}, {Name: "name", Type: saga.String, Optional: true, Personal: true},
				},
			}}},
			Failure: []saga.Answer{{Event: "LoanDeclined", Hop: "desk", Form: &saga.Form{Fields: []saga.Field{{Name: "why", Type: saga.String, OneOf: []string{"income", "age"}}}}}},
		}, {
			Name: "pay", Needs: []string{"approval"}, Command: &saga.Command{Hop: "bank", Type: "PayLoan", Input: saga.Mapping{"cents": "data.cents"}},
			Success: []saga.Answer{{Event: "LoanPaid"}},
		}},
	})
	require.NoError(t, err)
	require.NoError(t, decisions.StoreDefinition(t.Context(), pool, d))
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	_, err = desk.Start(t.Context(), sagadesk.StartRequest{Definition: d, Fields: map[string]any{"id": key}, Actor: "ann", Reason: "a test", Hop: "bank.loans"})
	require.NoError(t, err)
}

// The commands list the question, show what would follow, give the answer once, and show who gave it, without personal values.
func TestSagaAnswerGivesTheAwaitedEvent(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	begunLoan(t, pool, "l 1")
	env := []string{"DATABASE_URL=" + testkit.DatabaseURL(t, pool)}
	run := func(args ...string) (stdout, stderr string, status int) {
		o := finish(t, command(t, env, args...))
		return o.stdout, o.stderr, o.status
	}
	out, stderr, status := run("saga", "questions")
	require.Zero(t, status, stderr)
	require.Contains(t, out, "LoanApproved  cents int, [name string]")
	require.Contains(t, out, "LoanDeclined  why income|age")
	out, stderr, status = run("saga", "show", "loan/l 1")
	require.Zero(t, status, stderr)
	require.Contains(t, out, "\n  troupe saga answer 'loan/l 1' approval LoanApproved --field cents=INT\n")

	answer := func(more ...string) (string, string, int) {
		return run(append([]string{"saga", "answer", "loan/l 1", "approval", "LoanApproved", "--actor", "bob", "--reason", "ticket 7"}, more...)...)
	}
	for want, args := range map[string][]string{
		"--field cents: want a value of type int":              {"--field", "cents=many", "--yes"},
		"--field cents: want name=value":                       {"--field", "cents", "--yes"},
		"--field colour: the form of LoanApproved has no such": {"--field", "colour=red", "--yes"},
		"each field once":                                      {"--field", "cents=1", "--field", "cents=2", "--yes"},
		"refused: LoanApproved: cents: want a value":           {"--yes"},
		"cents: 1000001: want at most 1000000":                 {"--field", "cents=1000001", "--yes"},
		"no terminal for the confirmation; use --yes":          {"--field", "cents=5"},
	} {
		_, stderr, status := answer(args...)
		require.NotZero(t, status, want)
		require.Contains(t, stderr, want)
	}
	out, stderr, status = answer("--field", "cents=5", "--field", "name=Eve", "--dry-run")
	require.Zero(t, status, stderr)
	require.Contains(t, out, `would     answer approval with LoanApproved {"cents":5,"name":"(not shown)"} of loan/l 1, by bob: ticket 7`)
	require.Contains(t, out, "sends     PayLoan to bank, pay forward\n          {\"cents\":5}\n")
	out, stderr, status = answer("--field", "cents=5", "--field", "name=Eve", "--yes")
	require.Zero(t, status, stderr)
	require.Contains(t, out, "done      answer approval with LoanApproved")
	_, stderr, status = answer("--field", "cents=6", "--yes")
	require.NotZero(t, status)
	require.Contains(t, stderr, "step approval was answered before, with LoanApproved: nothing was changed; bob answered it with LoanApproved at ")
	out, stderr, status = run("saga", "show", "loan/l 1")
	require.Zero(t, status, stderr)
	require.Contains(t, out, `answer approval with LoanApproved {"cents":5,"name":"(not shown)"} by bob (role `)
	require.NotContains(t, out, "Eve")
	require.NotContains(t, out, "waits for an operator")
	out, stderr, status = run("saga", "questions")
	require.Zero(t, status, stderr)
	require.Equal(t, "No step waits for an operator.\n", out)
	var commands int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox WHERE type = 'PayLoan'").Scan(&commands))
	require.Equal(t, 1, commands)
}

// TestQuestionsThatAreMissingAreReported: an open saga has a definition that this program cannot read, such as one of a newer version.
func TestQuestionsThatAreMissingAreReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	begunLoan(t, pool, "l-1")
	for _, sql := range []string{
		`INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('newer', 'loan', 9, '{"form": 1}')`,
		"UPDATE troupe.sagas SET definition = 'newer'",
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	env := []string{"DATABASE_URL=" + testkit.DatabaseURL(t, pool)}
	out := finish(t, command(t, env, "saga", "questions"))
	require.Zero(t, out.status, out.stderr)
	require.Contains(t, out.stdout, "1 definition of open sagas could not be read")
	out = finish(t, command(t, env, "saga", "questions", "--output", "json"))
	require.Zero(t, out.status, out.stderr)
	require.JSONEq(t, `{"questions": [], "next": "", "left_out_definitions": 1}`, out.stdout)
}
