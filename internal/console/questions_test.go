package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
)

// sendForm sends a form as a browser without JavaScript does, with the token as a program, and returns the page.
func (d *desk) sendForm(address string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Authorization", "Bearer "+d.token)
	return d.serve(r)
}

// An operator finds the question, fills in its form, sees what follows, and answers with a reason, in the name of the session.
// A second click and a second person get the name of the first, and change nothing.
func TestAnOperatorAnswersAQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers).as(tokenOf("operator"))
	id := d.Loan("l-1")
	d.Loan("l-2")
	list := facts[questionsFacts](d, "/questions?db=order&limit=1")
	require.Equal(t, []string{id, "approval", "LoanApproved"}, []string{list.Questions[0].ID, list.Questions[0].Step, list.Questions[0].Events[0].Event})
	require.Equal(t, "loan/l-2", facts[questionsFacts](d, at("/questions", "db", "order", "limit", "1", "after", list.Next)).Questions[0].ID)
	require.Empty(t, facts[questionsFacts](d, "/questions?db=order&saga=order").Questions)
	page := func(address string) string {
		r := httptest.NewRequest(http.MethodGet, address, nil)
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Authorization", "Bearer "+d.token)
		w := d.serve(r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
	require.Contains(t, page("/"), "2 sagas wait for an operator&#39;s answer")
	require.Contains(t, page("/questions?db=order"), "Approve the loan: cents, name")
	require.Contains(t, page(at("/saga", "db", "order", "id", id)), "Answer approval…")
	form1 := page(at("/saga/answer", "db", "order", "id", id, "step", "approval"))
	require.Contains(t, form1, `<th scope="row">id</th><td><code class="value">&#34;l-1&#34;</code></td>`, "the variables that the decision is about")
	for _, part := range []string{
		`Cents a month</label>`, `name="field.cents" value="" type="number" step="1" min="1" max="250000" required`, `name="field.name" value="" maxlength="1000"`,
		`<select id="LoanDeclined.why" name="field.why" required>`, `<option>income</option>`, `<option value="true">yes</option>`, `step="any"`, "This value is not shown in histories",
	} {
		require.Contains(t, form1, part)
	}

	values := func(more ...string) url.Values {
		return form(append([]string{"db", "order", "id", id, "step", "approval", "event", "LoanApproved", "do", "preview", "field.cents", "700", "field.name", "Eve <X>"}, more...)...)
	}
	before := d.records()
	for name, one := range map[string]struct {
		change []string
		want   int
		says   string
	}{
		"too much":      {[]string{"field.cents", "250001"}, http.StatusConflict, "cents: 250001: want at most 250000"},
		"no number":     {[]string{"field.cents", "many"}, http.StatusUnprocessableEntity, "cents: want a value of type int"},
		"missing":       {[]string{"field.cents", ""}, http.StatusConflict, "cents: want a value of type int"},
		"unknown":       {[]string{"field.colour", "red"}, http.StatusUnprocessableEntity, "colour: the form of LoanApproved has no such field"},
		"another event": {[]string{"event", "LoanPaid"}, http.StatusConflict, "want LoanApproved or LoanDeclined"},
		"no event":      {[]string{"event", ""}, http.StatusBadRequest, "event: want the event"},
		"no JSON":       {[]string{"values", "{"}, http.StatusUnprocessableEntity, "want a JSON object"},
		"no reason":     {[]string{"do", "answer"}, http.StatusBadRequest, "reason"},
		"another actor": {[]string{"actor", "eve"}, http.StatusForbidden, "actor"},
	} {
		w := d.sendForm("/saga/answer", values(one.change...))
		require.Equal(t, one.want, w.Code, "%s: %s", name, w.Body)
		require.Contains(t, w.Body.String(), one.says, name)
	}
	require.Contains(t, d.sendForm("/saga/answer", values("field.cents", "250001")).Body.String(), `value="250001"`, "the entered text is kept")

	preview := d.sendForm("/saga/answer", values())
	require.Equal(t, http.StatusOK, preview.Code, preview.Body)
	for _, part := range []string{"<b>PayLoan</b>", "Cents a month</dt><dd>700", `name="field.name" value="Eve &lt;X&gt;"`, "Give this answer", `name="do" value="answer"`} {
		require.Contains(t, preview.Body.String(), part)
	}
	require.Equal(t, before, d.records(), "a preview and a refused answer write nothing")

	w := d.sendForm("/saga/answer", values("do", "answer", "reason", "ticket 9"))
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Equal(t, before+1, d.records())
	shown := page(at("/saga", "db", "order", "id", id))
	require.Contains(t, shown, `<b>answer</b> approval with LoanApproved {&#34;cents&#34;:700,&#34;name&#34;:&#34;(not shown)&#34;} by <a href="/actions?actor=operator">operator</a>: ticket 9`)
	for _, second := range []*desk{d, d.as(tokenOf("admin"))} {
		w = second.sendForm("/saga/answer", values("do", "answer", "reason", "ticket 10"))
		require.Equal(t, http.StatusConflict, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "answered before, with LoanApproved: nothing was changed; operator answered it with LoanApproved at ")
	}
	require.Equal(t, before+1, d.records())
	require.Len(t, facts[questionsFacts](d, "/questions?db=order").Questions, 1)
	require.Nil(t, facts[answerFacts](d, at("/saga/answer", "db", "order", "id", id, "step", "approval")).Question)
	var actor string
	var stored saga.Event
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT actor, event FROM troupe.saga_events WHERE kind = 'answer'").Scan(&actor, &stored))
	require.Equal(t, []any{"operator", "ticket 9", float64(700), "Eve <X>"}, []any{actor, stored.Reason, stored.Fields["cents"], stored.Fields["name"]})
}

// TestAnAnswerToASagaThatHasChangedSinceItsFormIsRefused: an admin changes a variable while an operator fills in the form.
func TestAnAnswerToASagaThatHasChangedSinceItsFormIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.Loan("l-1")
	address := at("/saga/answer", "db", "order", "id", id, "step", "approval")
	hash := func() string {
		found := regexp.MustCompile(`name="state_hash" value="([0-9a-f]+)"`).FindStringSubmatch(d.browse(address, nil, "Authorization", "Bearer "+token).Body.String())
		require.Len(t, found, 2)
		return found[1]
	}
	first := hash()
	answer := func(do, hash string) *httptest.ResponseRecorder {
		return d.post("/saga/answer", form("db", "order", "id", id, "step", "approval", "event", "LoanApproved", "values", `{"cents": 5}`, "reason", "ticket 9", "do", do, "state_hash", hash))
	}
	preview := answer("preview", first)
	require.Equal(t, http.StatusOK, preview.Code, preview.Body)
	require.Equal(t, first, decoded[answerFacts](t, preview.Body.Bytes()).Would.StateHash)

	w := d.post("/saga/act", form("db", "order", "id", id, "do", "set", "result", `{"name": "Eve"}`, "reason", "ticket 10"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	w = answer("answer", first)
	require.Equal(t, http.StatusConflict, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "the saga has changed since the preview")
	w = answer("answer", hash())
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}

// A console without a token shows the form's command.
func TestAConsoleThatOnlyShowsPrintsTheCommandOfAnAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Token = "" })
	id := d.Loan("l 1")
	page := d.html(at("/saga/answer", "db", "order", "id", id, "step", "approval"))
	require.Contains(t, page, `<code>troupe saga answer &#39;loan/l 1&#39; approval LoanApproved --field cents=…</code>`)
	require.NotContains(t, page, "<form class=\"card\"")
}

// TestAnOddSagaHidesNoQuestion: the role of an operator of sagas writes values into the row and the log of a saga that programs cannot read.
func TestAnOddSagaHidesNoQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, key := range []string{"l-1", "l-2", "l-3", "l-4", "l-5"} {
		d.Loan(key)
	}
	operator := grantstest.New(t, d.Pool, grants.SagaOperator).Pool()
	for _, sql := range []string{
		"UPDATE troupe.sagas SET state = 'null' WHERE id = 'loan/l-1'",
		"UPDATE troupe.sagas SET state = jsonb_set(state, '{steps,0,started}', '99999999999') WHERE id = 'loan/l-2'",
		"UPDATE troupe.sagas SET state = jsonb_set(state, '{steps,0,started}', '99') WHERE id = 'loan/l-3'",
		"INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ('loan/l-3', 99, 'infinity', 'started', '{}', '[]')",
		"UPDATE troupe.sagas SET definition = 'none' WHERE id = 'loan/l-5'",
	} {
		tag, err := operator.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
		require.EqualValues(t, 1, tag.RowsAffected(), sql)
	}
	var ids []string
	for _, one := range facts[questionsFacts](d, "/questions?db=order").Questions {
		ids = append(ids, one.ID)
	}
	require.Equal(t, []string{"loan/l-2", "loan/l-3", "loan/l-4"}, ids)
	page := d.html("/questions?db=order")
	require.Contains(t, page, "loan/l-4")
	require.NotContains(t, page, "Questions are missing here")
}

// TestQuestionsThatAreMissingAreReported: an open saga has a definition that this program cannot read, such as one of a newer version.
func TestQuestionsThatAreMissingAreReported(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Loan("l-1")
	_, err := d.Pool.Exec(t.Context(), `INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('newer', 'loan', 9, '{"form": 1}')`)
	require.NoError(t, err)
	_, err = d.Pool.Exec(t.Context(), "UPDATE troupe.sagas SET definition = 'newer'")
	require.NoError(t, err)
	require.Equal(t, 1, facts[questionsFacts](d, "/questions?db=order").LeftOut)
	require.Contains(t, d.html("/questions?db=order"), "1 definition of open sagas could not be read")
	require.Contains(t, d.html("/"), "Sagas may wait for an operator&#39;s answer: some definitions could not be read")
}
