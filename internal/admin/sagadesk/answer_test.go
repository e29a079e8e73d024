package sagadesk_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// loan is a definition whose second step an operator answers, while another step may be stuck.
func loan(t testing.TB, change ...func(*saga.Spec)) *saga.Definition {
	t.Helper()
	spec := saga.Spec{
		Saga: "loan", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "cents": saga.Int, "name": saga.String},
		Timeout: saga.Duration(48 * time.Hour),
		Cancel:  &saga.Cancel{Operator: true},
		Steps: []saga.Step{
			{
				Name: "approval", Timeout: saga.Duration(24 * time.Hour),
				Success: []saga.Answer{{
					Event: "Approved", Hop: "desk", Set: saga.Mapping{"cents": "event.cents", "name": "event.name"},
					Form: &saga.Form{Title: "Approve the loan", Fields: []saga.Field{{Name: "cents", Type: saga.Int}, {Name: "name", Type: saga.String, Personal: true}}},
				}},
				Failure: []saga.Answer{{Event: "Declined", Hop: "desk", Form: &saga.Form{}}},
			},
			{
				Name: "pay", Needs: []string{"approval"}, Command: &saga.Command{Hop: "bank", Type: "Pay", Input: saga.Mapping{"cents": "data.cents", "name": "data.name"}},
				Success: []saga.Answer{{Event: "Paid"}}, Failure: []saga.Answer{{Event: "NotPaid"}}, Timeout: saga.Duration(time.Hour),
			},
		},
	}
	for _, c := range change {
		c(&spec)
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// lent starts loans on a database, and returns its Desk.
func lent(t testing.TB, d *saga.Definition, keys ...string) (*pgxpool.Pool, *sagadesk.Desk) {
	t.Helper()
	pool := testkit.Database(t)
	require.NoError(t, decisions.StoreDefinition(t.Context(), pool, d))
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	for _, key := range keys {
		_, err := desk.Start(t.Context(), sagadesk.StartRequest{
			Definition: d, Fields: map[string]any{"id": key}, Actor: "ann", Reason: "a test", Hop: "bank.loans",
		})
		require.NoError(t, err)
	}
	return pool, desk
}

func approves(actor string, cents int) saga.Event {
	return saga.Event{
		Kind: saga.ActAnswer, Step: "approval", Type: "Approved", Fields: map[string]any{"cents": cents, "name": "Eve"}, Actor: actor, Reason: "ticket 7",
	}
}

func countOf(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

const paid = "SELECT count(*) FROM troupe.outbox WHERE type = 'Pay'"

// Each question has its saga, its step, the time since and until which it waits, and its forms.
func TestQuestionsAreListed(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, loan(t), "l-1", "l-2", "l-3")
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('broken', 'loan', 9, '{\"form\"')")
	require.NoError(t, err, "a definition that cannot be read does not hide the others")
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{Limit: 2})
	require.NoError(t, err)
	require.Len(t, found.Questions, 2)
	q := found.Questions[0]
	require.Equal(t, []string{"loan/l-1", "loan", "l-1", "approval"}, []string{q.ID, q.Saga, q.Key, q.Step})
	require.Equal(t, 24*time.Hour, q.Due.Sub(q.Since), "the time-out of the step comes before the one of the saga")
	require.Equal(t, "Approve the loan", q.Events[0].Title)
	require.Equal(t, "Declined", q.Events[1].Title, "the event, without a title")
	require.Equal(t, []string{"cents", "name"}, []string{q.Events[0].Fields[0].Name, q.Events[0].Fields[1].Name})
	found, err = desk.Questions(t.Context(), "loan", sagadesk.Page{Limit: 2, After: found.Next})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1)
	require.Empty(t, found.Next)
	_, err = desk.Act(t.Context(), "loan/l-3", approves("bob", 5))
	require.NoError(t, err)
	_, err = desk.Act(t.Context(), "loan/l-2", saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "withdrawn"})
	require.NoError(t, err)
	found, err = desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1, "an answered and a cancelled saga have no question")
	n, _, err := desk.CountQuestions(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	g, err := desk.Get(t.Context(), "loan/l-1")
	require.NoError(t, err)
	of, err := desk.QuestionsOf(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, found.Questions, of)
	found, err = desk.Questions(t.Context(), "order", sagadesk.Page{})
	require.NoError(t, err)
	require.Empty(t, found.Questions)
}

// Of several operators who answer at once, one is accepted. The others get its name, and change nothing. Replay gives the row.
func TestOfSeveralAnswersOneIsAccepted(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, loan(t), "l-1")
	other, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	const people = 6
	refused := make([]error, people)
	var all errgroup.Group
	for i := range people {
		all.Go(func() error {
			d := []*sagadesk.Desk{desk, other}[i%2]
			e := approves(fmt.Sprint("person ", i), i)
			if i%3 == 0 {
				e.Type, e.Fields = "Declined", nil
			}
			if _, refused[i] = d.Act(t.Context(), "loan/l-1", e); refused[i] != nil && !errors.Is(refused[i], decisions.ErrRefused) {
				return refused[i]
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	first := ""
	for i, err := range refused {
		if err == nil {
			require.Empty(t, first, "two were accepted")
			first = fmt.Sprint("person ", i)
		}
	}
	require.NotEmpty(t, first)
	for _, err := range refused {
		if err != nil {
			require.ErrorContains(t, err, first+" answered it with ")
		}
	}
	require.Equal(t, 1, countOf(t, pool, "SELECT count(*) FROM troupe.saga_events WHERE kind = 'answer' AND actor = $1 AND reason = 'ticket 7'", first))
	require.Equal(t, 1, countOf(t, pool, "SELECT count(*) FROM troupe.saga_events WHERE kind = 'answer'"))
	g, err := desk.Get(t.Context(), "loan/l-1")
	require.NoError(t, err)
	require.Equal(t, map[saga.Status]int{saga.Running: 1, saga.Compensated: 0}[g.Status], countOf(t, pool, paid))
	replayed, err := desk.Replay(t.Context(), "loan/l-1")
	require.NoError(t, err)
	require.Empty(t, replayed.Difference)
}

// A preview of an answer writes nothing, and is the same decision. A refused answer writes nothing either.
func TestAPreviewOfAnAnswerWritesNothing(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, loan(t), "l-1")
	would, err := desk.Preview(t.Context(), "loan/l-1", approves("", 5))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"cents": int64(5), "name": "Eve"}, would.Effects.Commands[0].Fields)
	_, err = desk.Act(t.Context(), "loan/l-1", approves("", 5))
	require.ErrorIs(t, err, decisions.ErrRefused, "no actor")
	wrong := approves("bob", 5)
	wrong.Fields["colour"] = "red"
	_, err = desk.Act(t.Context(), "loan/l-1", wrong)
	require.ErrorContains(t, err, `"colour": the form has no such field`)
	require.Equal(t, 0, countOf(t, pool, paid))
	require.Equal(t, 1, countOf(t, pool, "SELECT version FROM troupe.sagas"))
	done, err := desk.Act(t.Context(), "loan/l-1", approves("bob", 5))
	require.NoError(t, err)
	require.Equal(t, would.Effects.Commands, done.Effects.Commands)
	require.Equal(t, 1, countOf(t, pool, paid))
}

// A personal value is in no text that is shown.
func TestAPersonalValueIsHidden(t *testing.T) {
	t.Parallel()
	d := loan(t)
	e := approves("bob", 5)
	require.Equal(t, `Approved {"cents":5,"name":"(not shown)"}`, sagadesk.Given(d, e))
	moved := loan(t, func(s *saga.Spec) { s.Steps[0].Success[0].Form, s.Version = nil, 2 })
	require.NotContains(t, sagadesk.Given(moved, e), "Eve", "also if the saga has moved to a definition without the form")
	e.Fields["cents"] = strings.Repeat("x", 1000)
	require.LessOrEqual(t, len([]rune(sagadesk.Given(d, e))), 300)
	require.Empty(t, sagadesk.Given(d, saga.Event{Kind: saga.ActSet, Fields: map[string]any{"a": 1}}))
}

// An answer of a parked saga is applied, and the saga stays parked until its cause is removed.
func TestAParkedSagaIsAnswered(t *testing.T) {
	t.Parallel()
	d := loan(t, func(s *saga.Spec) {
		s.Data["broken"] = saga.Bool
		s.Ends = []saga.End{{When: "data.broken", Then: saga.ThenPark}}
	})
	_, desk := lent(t, d, "l-1")
	_, err := desk.Act(t.Context(), "loan/l-1", saga.Event{Kind: saga.ActSet, Fields: map[string]any{"broken": true}, Actor: "ann", Reason: "a test"})
	require.NoError(t, err)
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1)
	done, err := desk.Act(t.Context(), "loan/l-1", approves("bob", 5))
	require.NoError(t, err)
	require.Equal(t, saga.Parked, done.State.Status)
	require.Empty(t, done.Effects.Commands)
	done, err = desk.Act(t.Context(), "loan/l-1", saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "a test"})
	require.NoError(t, err)
	require.Len(t, done.Effects.Commands, 1)
}

// TestAResumeAfterAPreviewPassesNoOtherCondition: two operators preview the resume of a saga. The first resumes it, and the next end parks it.
func TestAResumeAfterAPreviewPassesNoOtherCondition(t *testing.T) {
	t.Parallel()
	d := loan(t, func(s *saga.Spec) {
		s.Data["large"], s.Data["foreign"] = saga.Bool, saga.Bool
		s.Ends = []saga.End{{When: "data.large", Then: saga.ThenPark}, {When: "data.foreign", Then: saga.ThenPark}}
	})
	_, desk := lent(t, d, "l-1")
	_, err := desk.Act(t.Context(), "loan/l-1", saga.Event{Kind: saga.ActSet, Fields: map[string]any{"large": true, "foreign": true}, Actor: "ann", Reason: "a test"})
	require.NoError(t, err)
	previewed, err := desk.Get(t.Context(), "loan/l-1")
	require.NoError(t, err)
	require.Equal(t, "data.large", previewed.State.Held)
	resume := saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "a test"}
	done, err := desk.ActIfUnchanged(t.Context(), "loan/l-1", resume, previewed.StateHash())
	require.NoError(t, err)
	require.Equal(t, "data.foreign", done.State.Held)
	_, err = desk.ActIfUnchanged(t.Context(), "loan/l-1", resume, previewed.StateHash())
	require.ErrorContains(t, err, "the saga has changed since the preview")
}

// A running saga that moves to a definition with a form gets its question, and the reverse.
func TestAMoveChangesTheQuestion(t *testing.T) {
	t.Parallel()
	with := loan(t)
	without := loan(t, func(s *saga.Spec) { s.Steps[0].Success[0].Form, s.Steps[0].Failure[0].Form, s.Version = nil, nil, 2 })
	pool, desk := lent(t, without, "l-1")
	_, err := desk.Act(t.Context(), "loan/l-1", approves("bob", 5))
	require.ErrorContains(t, err, "step approval declares no form")
	move := func(to *saga.Definition) {
		t.Helper()
		require.NoError(t, decisions.StoreDefinition(t.Context(), pool, to))
		require.NoError(t, desk.Migrate(t.Context(), sagadesk.Migration{To: to, Actor: "ann", Reason: "a test"}, func(m sagadesk.Move) error {
			require.Empty(t, m.Obstacle)
			return nil
		}))
	}
	move(with)
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1)
	move(without)
	found, err = desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Empty(t, found.Questions)
	move(with)
	_, err = desk.Act(t.Context(), "loan/l-1", approves("bob", 5))
	require.NoError(t, err)
	require.Equal(t, 1, countOf(t, pool, paid))
}

// The texts of a form become values of the fields' types.
func TestTextsOfAFormAreRead(t *testing.T) {
	t.Parallel()
	f := sagadesk.FormEvent{Event: "Approved", Fields: []saga.Field{
		{Name: "s", Type: saga.String}, {Name: "i", Type: saga.Int}, {Name: "d", Type: saga.Double}, {Name: "b", Type: saga.Bool}, {Name: "o", Type: saga.Int, Optional: true},
	}}
	values, err := sagadesk.ReadFormValues(f, map[string]string{"s": "7", "i": "-7", "d": "7.5", "b": "false", "o": ""})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"s": "7", "i": int64(-7), "d": 7.5, "b": false}, values)
	for name, text := range map[string]string{"i": "7.0", "d": "seven", "b": "perhaps", "x": ""} {
		_, err := sagadesk.ReadFormValues(f, map[string]string{name: text})
		require.ErrorContains(t, err, name+": ", text)
	}
	_, err = sagadesk.ReadFormValues(f, map[string]string{"i": "9223372036854775808"})
	require.ErrorContains(t, err, "want a value of type int")
}
