package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

func TestALetterIsEditedAndRedriven(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	address := at("/dead-letter", "db", "order", "id", id)
	w := d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "reason", "ticket 1", "payload", "{"))
	require.Equal(t, http.StatusUnprocessableEntity, w.Code, w.Body)
	require.Equal(t, http.StatusBadRequest, d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "payload", "{}")).Code, "no reason")
	w = d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "reason", "ticket 1", "payload", `{"currency": "EUR"}`))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, d.html(address), "What a redrive sends")
	w = d.post("/dead-letter", form("db", "order", "id", id, "do", "redrive"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	l := facts[letterFacts](d, address).Letter
	require.Equal(t, repair.Redriven, l.Status)
	require.JSONEq(t, `{"currency": "EUR"}`, string(l.Edit.JSON))
	require.Equal(t, []string{"edit", "redrive"}, []string{l.History[0].Action, l.History[1].Action})
	var sent string
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT convert_from(payload, 'UTF8') FROM troupe.outbox WHERE topic = 'shop.billing.commands'").Scan(&sent))
	require.JSONEq(t, `{"currency": "EUR"}`, sent)
	require.Equal(t, http.StatusConflict, d.post("/dead-letter", form("db", "order", "id", id, "do", "redrive")).Code)
}

// TestAnEditedMessageKeepsItsIdempotencyKeyOnRequestOnly redrives edited dead letters one by one, and as a group.
func TestAnEditedMessageKeepsItsIdempotencyKeyOnRequestOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ids := d.letters()[:3]
	for _, id := range ids {
		w := d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "reason", "ticket 1", "payload", `{"currency": "EUR"}`))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	redriven := func(another bool) {
		t.Helper()
		var n, edits int
		require.NoError(t, d.Pool.QueryRow(t.Context(), `
			WITH sent AS (DELETE FROM troupe.outbox WHERE topic = 'shop.billing.commands' RETURNING raw_headers)
			SELECT count(*), count(*) FILTER (WHERE position($1 IN raw_headers) > 0) FROM sent`, []byte(deadletter.HeaderRedriveEdit)).Scan(&n, &edits))
		require.Equal(t, 1, n)
		require.Equal(t, another, edits == 1, "another idempotency key")
	}
	w := d.post("/dead-letter", form("db", "order", "id", ids[0], "do", "redrive"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	redriven(true)
	w = d.post("/dead-letter", form("db", "order", "id", ids[1], "do", "redrive", "same_key", "1"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	redriven(false)
	w = d.post("/dead-letters/act", form("db", "order", "do", "redrive", "class", "permanent"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, 1, d.work(decoded[Work](t, w.Body.Bytes()).ID).Done)
	redriven(true)
}

// work waits until a Work has ended.
func (d *desk) work(id string) (w Work) {
	testkit.Wait(d.t, "work "+id+" to end", func() (bool, error) {
		w = facts[Work](d, at("/work", "id", id))
		return w.Ended != nil, nil
	})
	return w
}

func TestAGroupIsRedrivenAndAnotherDiscarded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	causes := facts[causesFacts](d, "/dead-letters").Databases[0].Causes
	require.Equal(t, []int{3, 1}, []int{causes[0].Count, causes[1].Count})
	preview := facts[groupFacts](d, at("/dead-letters/act", "db", "order", "do", "redrive", "cause", causes[0].ID))
	require.Equal(t, 3, preview.Count)
	require.Equal(t, http.StatusBadRequest, d.post("/dead-letters/act", form("db", "order", "do", "redrive")).Code, "all of it, unsaid")
	require.Equal(t, http.StatusBadRequest, d.post("/dead-letters/act", form("db", "order", "do", "discard", "cause", causes[1].ID)).Code, "no reason")

	var begun Work
	for i, do := range []string{"redrive", "discard"} {
		w := d.post("/dead-letters/act", form("db", "order", "do", do, "cause", causes[i].ID, "reason", "ticket 2", "rate", "1000", "count", strconv.Itoa(causes[i].Count)))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		begun = decoded[Work](t, w.Body.Bytes())
		ended := d.work(begun.ID)
		require.Equal(t, Work{
			ID: begun.ID, Do: do, Database: "order", Chosen: begun.Chosen, Actor: "ann", Reason: "ticket 2", Total: causes[i].Count, Done: causes[i].Count,
			Refusals: []Refusal{}, Began: ended.Began, Ended: ended.Ended,
		}, ended)
		require.Contains(t, d.html(at("/work", "id", begun.ID)), "completed")
	}
	require.Empty(t, facts[causesFacts](d, "/dead-letters").Databases[0].Causes)
}

func TestARedriveStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	cause := facts[causesFacts](d, "/dead-letters").Databases[0].Causes[0].ID
	w := d.post("/dead-letters/act", form("db", "order", "do", "redrive", "cause", cause, "rate", "0.01")) // one at once, the next in 100 s
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	id := decoded[Work](t, w.Body.Bytes()).ID
	testkit.Wait(t, "the first to be redriven", func() (bool, error) { return facts[Work](d, at("/work", "id", id)).Done == 1, nil })
	require.Equal(t, http.StatusOK, d.post("/work", form("id", id, "do", "stop")).Code)
	ended := d.work(id)
	require.Equal(t, 1, ended.Done)
	require.Contains(t, ended.Error, "it was stopped")
	w = d.post("/dead-letters/act", form("db", "order", "do", "redrive", "cause", cause, "rate", "1000"))
	require.Equal(t, 2, d.work(decoded[Work](t, w.Body.Bytes()).ID).Done)
}

func TestWorkEndsWithTheConsole(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	cause := facts[causesFacts](d, "/dead-letters").Databases[0].Causes[0].ID
	w := d.post("/dead-letters/act", form("db", "order", "do", "redrive", "cause", cause, "rate", "0.01"))
	id := decoded[Work](t, w.Body.Bytes()).ID
	d.c.Close()
	require.NotNil(t, facts[Work](d, at("/work", "id", id)).Ended)
	require.Equal(t, http.StatusServiceUnavailable, d.post("/dead-letters/act", form("db", "order", "do", "redrive", "cause", cause)).Code)
}

func TestAHeldKeyIsTriedAndGivenUp(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	const place = "shop.billing.commands/0/9"
	before := facts[heldKeyFacts](d, at("/held/key", "db", "order", "place", place)).Held
	require.Equal(t, 2, before.Behind)
	w := d.post("/held/key", form("db", "order", "place", place, "group", "shop.billing", "do", "retry"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.True(t, facts[heldKeyFacts](d, at("/held/key", "db", "order", "place", place)).Held.NextTry.Before(*before.NextTry))
	require.Equal(t, http.StatusBadRequest, d.post("/held/key", form("db", "order", "place", place, "do", "dead-letter")).Code, "no reason")
	w = d.post("/held/key", form("db", "order", "place", place, "do", "dead-letter", "reason", "ticket 3"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	released := decoded[repair.ReleaseResult](t, w.Body.Bytes())
	require.Equal(t, 2, released.Behind)
	require.Contains(t, d.html(at("/dead-letter", "db", "order", "id", released.DeadLetter.String())), "bank answered 503")
	require.Equal(t, http.StatusConflict, d.post("/held/key", form("db", "order", "place", place, "do", "dead-letter", "reason", "ticket 3")).Code)
}

func TestASagaIsRetriedAsItsPreviewSaid(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.parked("o-1002")
	d.Fail("o-1002", "ReserveStock", "")
	preview := facts[actFacts](d, at("/saga/act", "db", "order", "id", id, "do", "retry", "step", "inventory"))
	require.False(t, preview.Done)
	require.Equal(t, saga.Running, preview.Status)
	require.Equal(t, "ReserveStock", preview.Commands[0].Type)
	require.Equal(t, saga.Parked, facts[sagasFacts](d, "/sagas").Sagas[0].Status, "a preview does nothing")
	require.Equal(t, http.StatusBadRequest, d.post("/saga/act", form("db", "order", "id", id, "do", "retry", "step", "inventory")).Code, "no reason")
	w := d.post("/saga/act", form("db", "order", "id", id, "do", "retry", "step", "inventory", "reason", "ticket 4: the warehouse is back"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.True(t, decoded[actFacts](t, w.Body.Bytes()).Done)
	d.Await(id, saga.Completed)
	page := d.html(at("/saga", "db", "order", "id", id))
	require.Contains(t, page, "ticket 4: the warehouse is back")
	require.Contains(t, page, `by <a href="/actions?actor=ann">ann</a>`)
	require.Equal(t, http.StatusConflict, d.post("/saga/act", form("db", "order", "id", id, "do", "retry", "step", "inventory", "reason", "again")).Code)
}

// TestAnActionOnASagaThatHasChangedSinceItsPreviewIsRefused: after the preview, another operator resolves a step, and the saga is parked
// again at the next one; or another operator sets a variable.
func TestAnActionOnASagaThatHasChangedSinceItsPreviewIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.parked("o-1002")
	d.Fail("o-1002", "ShipOrder", "the carrier answers 503")
	address := at("/saga/act", "db", "order", "id", id, "do", "compensate")
	hash := func() string { return facts[actFacts](d, address).StateHash }
	act := func(values ...string) (int, string) {
		w := d.post("/saga/act", form(append([]string{"db", "order", "id", id, "reason", "ticket 4"}, values...)...))
		return w.Code, w.Body.String()
	}
	first := hash()
	require.Contains(t, d.browse(address, nil, "Authorization", "Bearer "+token).Body.String(), `name="state_hash" value="`+first+`"`)
	require.Equal(t, first, hash())
	code, body := act("do", "resolve", "step", "inventory", "happened", "yes", "state_hash", first)
	require.Equal(t, http.StatusOK, code, body)
	d.Await(id, saga.Parked)
	code, body = act("do", "compensate", "state_hash", first)
	require.Equal(t, http.StatusConflict, code, body)
	require.Contains(t, body, "the saga has changed since the preview, and is parked now: nothing was done")

	second := hash()
	require.NotEqual(t, first, second)
	code, body = act("do", "set", "result", `{"quantity": 7}`)
	require.Equal(t, http.StatusOK, code, body)
	code, body = act("do", "compensate", "state_hash", second)
	require.Equal(t, http.StatusConflict, code, body)
	code, body = act("do", "compensate", "state_hash", hash())
	require.Equal(t, http.StatusOK, code, body)
}

func TestASagasHistoryHasTheServersRoleAndTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.parked("o-1002")
	w := d.post("/saga/act", form("db", "order", "id", id, "do", "abandon", "reason", "ticket 6"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	_, err := d.Pool.Exec(t.Context(), "UPDATE troupe.saga_events SET recorded_at = at")
	require.NoError(t, err)
	page := d.html(at("/saga", "db", "order", "id", id))
	require.Contains(t, page, "(as "+d.cfg.Databases[0].Pool.Config().ConnConfig.User+")")
	require.NotContains(t, page, "written by the server")
	_, err = d.Pool.Exec(t.Context(), "UPDATE troupe.saga_events SET at = at - interval '1 hour' WHERE saga_id = $1 AND kind = 'abandon'", id)
	require.NoError(t, err)
	require.Contains(t, d.html(at("/saga", "db", "order", "id", id)), "written by the server")
}

func TestASagaIsResolvedAndAnotherCompensated(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first, second := d.parked("o-1"), d.parked("o-2")
	w := d.post("/saga/act", form("db", "order", "id", first, "do", "resolve", "step", "inventory", "happened", "yes", "reason", "ticket 5",
		"result", `{"reservation_id": "by-hand-1"}`))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	d.Await(first, saga.Completed)
	require.Contains(t, d.html(at("/saga", "db", "order", "id", first)), "by-hand-1")
	require.Equal(t, http.StatusUnprocessableEntity, d.post("/saga/act", form("db", "order", "id", second, "do", "skip", "step", "inventory",
		"reason", "ticket 6", "result", "{")).Code)
	require.Equal(t, http.StatusOK, d.post("/saga/act", form("db", "order", "id", second, "do", "compensate", "reason", "ticket 6")).Code)
	d.Await(second, saga.Compensated)
}

func TestAFormTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "x", Payload: "{}"}).String()
	w := d.post("/dead-letter", form("db", "order", "id", id, "do", "edit", "reason", "x", "payload", strings.Repeat("x", bodyLimit)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

func TestAReasonTooLongIsRefusedByEachAction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	long := strings.Repeat("x", admin.MaxReason+1)
	for _, act := range []struct {
		path   string
		values url.Values
	}{
		{"/dead-letter", form("db", "order", "id", id, "do", "redrive")},
		{"/dead-letters/act", form("db", "order", "do", "redrive", "all", "1")}, // the others
		{"/held/key", form("db", "order", "do", "retry", "all", "1")},
		{"/relay/act", form("db", "order", "do", "pause")},
	} {
		path, values := act.path, act.values
		values.Set("reason", long)
		w := d.post(path, values)
		require.Equal(t, http.StatusBadRequest, w.Code, path)
		require.Contains(t, w.Body.String(), "reason: 2001 bytes: at most 2000", path)
		values.Set("reason", long[1:])
		require.Equal(t, http.StatusOK, d.post(path, values).Code, path)
	}
}

// countingBody counts the bytes that are read.
type countingBody struct{ left, read int }

func (b *countingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	for i := range n {
		p[i] = 'a'
	}
	b.left, b.read = b.left-n, b.read+n
	return n, nil
}

func TestAFormIsReadAsFarAsItsUserMayUseIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers)
	for _, one := range []struct {
		path, user string
		status     int
		most       int
	}{
		{"/dead-letter", "", http.StatusUnauthorized, 0},
		{"/dead-letter", "nobody", http.StatusUnauthorized, 0},
		{"/saga/act", "", http.StatusUnauthorized, 0},
		{"/sign-in", "", http.StatusRequestEntityTooLarge, 2 * 64 << 10},
		{"/dead-letter", "viewer", http.StatusRequestEntityTooLarge, 2 * 256 << 10},
		{"/dead-letter", "operator", http.StatusRequestEntityTooLarge, 2 * 256 << 10},
		{"/saga/act", "admin", http.StatusRequestEntityTooLarge, 2 * 256 << 10},
		{"/dead-letter", "admin", http.StatusBadRequest, 8 << 20}, // the form has no do
	} {
		body := &countingBody{left: 8 << 20}
		r := httptest.NewRequest(http.MethodPost, one.path, body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if one.user != "" {
			r.Header.Set("Authorization", "Bearer "+tokenOf(one.user))
		}
		require.Equal(t, one.status, d.serveJSON(r).Code, one)
		require.LessOrEqual(t, body.read, one.most, one)
	}
}
