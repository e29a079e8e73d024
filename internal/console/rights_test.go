package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
)

// Each page and each action of the table of pages works with the printed rights; where the role in Postgres is a
// viewer, each page still works, and each action is refused by the database without a record.
func TestEachPageAndActionWorksWithThePrintedRights(t *testing.T) {
	t.Parallel()
	const lacks = `permission denied|SQLSTATE 42501|lacks a right`
	d := roled(t)
	gets, posts := d.places(t)
	shows := newDesk(t, withUsers, func(c *Config) {
		c.Databases = []Database{{"order", asViewer(t, d.Pool)}, {"empty", d.cfg.Databases[1].Pool}}
		c.Watch = d.cfg.Watch
	})
	admin := shows.as(tokenOf("admin"))
	for _, p := range pages {
		if p.path == "/work" {
			continue // it is in the memory of the other console
		}
		w := admin.get(gets[p.path])
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", p.path, w.Body)
		require.NotRegexp(t, lacks, w.Body.String(), p.path)
		w = admin.browse(gets[p.path], nil, "Authorization", "Bearer "+admin.token)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", p.path, w.Body)
		require.NotRegexp(t, lacks, w.Body.String(), p.path)
	}
	before := d.records()
	for action, form := range posts {
		path, _, _ := strings.Cut(action, " ")
		form.Set("actor", "admin")
		if path == "/work" || action == "/saga/answer preview" { // a preview only reads
			continue
		}
		w := admin.post(path, form)
		if path == "/dead-letters/act" || path == "/definition/move" || path == "/sagas/retry" { // works: the page of the work has the refusal
			continue
		}
		require.NotEqual(t, http.StatusOK, w.Code, "%s: %s", action, w.Body)
		if w.Code == http.StatusBadGateway {
			require.Regexp(t, lacks, w.Body.String(), action)
		}
	}
	require.Equal(t, before, d.records())

	admin = d.as(tokenOf("admin"))
	letter := stage.Letter{Key: "o-30", Type: "ChargeCard", Class: "timeout", Error: "charge card: no answer in 5s", Payload: `{"order_id": "o-30"}`}
	for _, page := range pages {
		for i, do := range page.actions() {
			form := posts[page.path+" "+do]
			switch page.path { // an object that no action before has changed
			case "/saga/act":
				form.Set("id", d.parked(fmt.Sprint("o-20", i)))
				if do == "set" {
					form.Set("result", `{"title": 8}`)
				}
			case "/sagas/retry":
				form.Set("count", fmt.Sprint(facts[retryFacts](admin, at("/sagas/retry", "db", "order", "saga", "order")).Parked))
			case "/dead-letter":
				form.Set("id", d.Dead(100+i, letter).String())
			case "/relay/row":
				form.Set("id", d.FailedRow("shop.gone.commands", "parked", "no such topic"))
			case "/relay/act":
				form.Set("topic", fmt.Sprint("shop.gone.", do))
				d.FailedRow(form.Get("topic"), "parked", "no such topic")
			case "/dead-letters/act":
				form.Set("cause", "")
				form.Set("hop", "shop.billing")
				form.Set("key", fmt.Sprint("o-4", i))
				form.Set("count", "1")
				one := letter
				one.Key = form.Get("key") // of its own: the work may go on while the next action runs
				d.Dead(200+i, one)
			}
			w := admin.post(page.path, form)
			want := http.StatusOK
			if (do == "resume" || do == "cancel") && page.path == "/saga/act" {
				want = http.StatusConflict // its step has to be decided first, and it declares no cancel; TestEveryCommandWorksWithThePrintedRights does both
			}
			require.Equal(t, want, w.Code, "%s %s: %s", page.path, do, w.Body)
			require.NotRegexp(t, lacks, w.Body.String(), "%s %s", page.path, do)
		}
	}
}
