//go:build browser

package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/png"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

var screenshots = flag.String("screenshots", "", "a `folder` to write pictures of the pages to")

func TestMain(m *testing.M) { testkit.Main(m) }

const token = "a token of some length"

// limit bounds one test's time in the browser, on a busy machine.
const limit = 3 * time.Minute

// A person is a user with a browser, with a console over a flow with failures.
type person struct {
	*stage.Stage
	t      testing.TB
	ctx    context.Context
	root   string
	letter string // a dead letter's id
	loan   string // the id of a saga with a question; "": it was not made yet
	errors chan string
	stop   func() // ends the console's server

	first, parcels, goods string // hashes of the order's definitions: the running one, one to which sagas can move, and one to which none can
}

func newPerson(t testing.TB) *person {
	s := stage.New(t)
	for i := range 3 {
		s.Dead(i, stage.Letter{
			Key: fmt.Sprintf("o-%d", i), Type: "ChargeCard", Class: "permanent", Payload: fmt.Sprintf(`{"order_id": "o-%d", "cents": 1999, "currency": "EURO"}`, i),
			Error: fmt.Sprintf(`order o-%d: currency "EURO" is not known`, i),
		})
	}
	id := s.Dead(3, stage.Letter{Key: "o-7", Type: "ChargeCard", Class: "timeout", Error: "charge card: no answer in 5s", Payload: `{"order_id": "o-7", "cents": 250}`})
	s.Hold(9, 2, stage.Letter{Key: "o-9", Type: "ChargeCard", Class: "transient", Error: "bank answered 503", Payload: `{"order_id": "o-9"}`})
	for i := range 12 {
		s.Order(fmt.Sprintf("o-10%02d", i), saga.Completed)
	}
	s.Refuse("o-1012", "ShipOrder", "no carrier to the Moon")
	s.Order("o-1012", saga.Compensated)
	for _, key := range []string{"o-1013", "o-1014"} {
		s.Fail(key, "ReserveStock", "the warehouse answers 503")
		s.Order(key, saga.Parked)
	}
	var first string
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT hash FROM troupe.saga_definitions").Scan(&first))
	parcels := s.Parcels()
	goods := s.Store(func(spec *saga.Spec) {
		reserve := *spec.Steps[1].Command
		reserve.Type = "ReserveGoods"
		spec.Version, spec.Steps[1].Command = 3, &reserve
	})
	s.Leads()
	for _, status := range []string{"parked", "parked", "waiting"} {
		s.FailedRow("shop.delivery.commands", status, "UNKNOWN_TOPIC_OR_PARTITION: the topic does not exist")
	}
	s.FailedRow("shop.billing.commands", "retrying", "NOT_ENOUGH_REPLICAS: messages are rejected")
	s.Watched()
	c, err := console.New(t.Context(), console.Config{
		Databases: []console.Database{{Name: "order", Pool: s.Pool}}, Watch: s.Pool, Token: token, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	server := httptest.NewServer(c)
	stop := func() { c.Close(); server.CloseClientConnections(); server.Close() } // c first, since live pages would delay the server's end
	t.Cleanup(stop)
	p := newBrowser(t, server.URL)
	p.stop = stop
	p.Stage, p.letter = s, id.String()
	p.first, p.parcels, p.goods = first, parcels, goods
	return p
}

// newBrowser returns a person with a browser at the console at root.
func newBrowser(t testing.TB, root string) *person {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1200, 900),
		chromedp.WSURLReadTimeout(limit), chromedp.Flag("disable-dev-shm-usage", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	p := &person{t: t, ctx: ctx, root: root, errors: make(chan string, 100)}
	chromedp.ListenTarget(ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			if e.Entry.Source == log.SourceSecurity || e.Entry.Level == log.LevelError {
				text = e.Entry.Text
			}
		}
		if text != "" {
			select {
			case p.errors <- text:
			default:
			}
		}
	})
	// The first Run starts the browser, and must not have a limit that would end it.
	require.NoError(t, chromedp.Run(ctx, log.Enable()), "want Chromium: apt-get install chromium")
	return p
}

func (p *person) do(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, end := context.WithTimeout(p.ctx, limit)
	defer end()
	require.NoError(p.t, chromedp.Run(ctx, actions...))
}

func (p *person) open(page string, values ...string) {
	p.t.Helper()
	p.visit(p.address(page, values...))
}

func (p *person) visit(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address), chromedp.WaitReady("main"))
}

func (p *person) address(page string, values ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		q.Set(values[i], values[i+1])
	}
	if len(q) == 0 {
		return p.root + page
	}
	return p.root + page + "?" + q.Encode()
}

// sees waits until the page contains text.
func (p *person) sees(text string) {
	p.t.Helper()
	testkit.Wait(p.t, "the page to say "+text, func() (bool, error) {
		var have string
		err := chromedp.Run(p.ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &have))
		return strings.Contains(have, text), err
	})
}

// press clicks the first element with that text, once it exists. It is found and clicked in one script, since a live page may
// be replaced at any time.
func (p *person) press(tag, text string) {
	p.t.Helper()
	p.at(fmt.Sprintf(`//main//%s[normalize-space()=%s]`, tag, "'"+text+"'"), `found.click()`)
}

// fill sets a field, once it exists.
func (p *person) fill(id, text string) {
	p.t.Helper()
	p.at(fmt.Sprintf(`//main//*[@id='%s']`, id), fmt.Sprintf(`found.value = %q`, text))
}

// at runs a script on the element that an XPath finds.
func (p *person) at(xpath, does string) {
	p.t.Helper()
	testkit.Wait(p.t, xpath, func() (is bool, err error) {
		err = chromedp.Run(p.ctx, chromedp.Evaluate(fmt.Sprintf(`(() => {
			const found = document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue;
			if (!found || document.readyState !== "complete") return false;
			%s;
			return true;
		})()`, xpath, does), &is))
		return is, err
	})
}

func (p *person) signIn() {
	p.t.Helper()
	p.open("/sign-in")
	p.fill("name", "ann")
	p.fill("token", token)
	p.press("button", "Sign in")
	p.sees("Sign out")
}

// quiet checks that the browser logged nothing: no error of a script, nothing that the policy forbids.
func (p *person) quiet() {
	p.t.Helper()
	select {
	case text := <-p.errors:
		require.Fail(p.t, "the browser complains", text)
	default:
	}
}

func TestAPersonRepairsWhatFailed(t *testing.T) {
	p := newPerson(t)
	p.open("/")
	p.sees("3 dead letters: ")
	p.sees("2 sagas are parked")
	p.signIn()

	p.open("/dead-letter", "db", "order", "id", p.letter)
	p.press("summary", "Edit the payload")
	p.fill("edit", "{")
	p.fill("why-edit", "ticket 1")
	p.press("button", "Save the edit")
	p.sees("not JSON")
	p.fill("edit", `{"order_id": "o-7", "cents": 251}`)
	p.press("button", "Save the edit")
	p.sees("What a redrive sends")
	p.press("summary", "Redrive it")
	p.press("button", "Redrive")
	p.sees("redriven")
	p.sees("redrive by ann")

	p.open("/dead-letters")
	p.press("a", `order o-*: currency "*" is not known`)
	p.press("a", "Redrive all of this cause")
	p.sees("Redrive 3 dead letters")
	p.fill("rate", "1000")
	p.press("button", "Redrive")
	p.sees("3 of 3")

	p.open("/held")
	p.press("a", "o-9")
	p.press("summary", "Make it a dead letter, so that its key goes on")
	p.fill("why-dead-letter", "ticket 2")
	p.press("button", "Make it a dead letter")
	p.sees("Dead letters ›")

	p.open("/relay")
	p.press("a", "Pause")
	p.sees("What would follow")
	p.fill("reason", "ticket 6")
	p.press("button", "Pause")
	p.sees("by ann: ticket 6")
	p.press("a", "Resume")
	p.press("button", "Resume")
	p.sees("active")

	p.open("/saga", "db", "order", "id", "order/o-1013")
	p.press("a", "Resolve inventory: it happened")
	p.sees("What would follow")
	p.fill("result", `{"reservation_id": "by-hand-1"}`)
	p.fill("reason", "ticket 3")
	p.press("button", "Resolve inventory: it happened")
	p.sees("ticket 3")
	p.Await("order/o-1013", saga.Completed)
	p.sees("completed") // without a reload: the page is live

	p.open("/saga", "db", "order", "id", "order/o-1014")
	p.press("a", "Compensate")
	p.fill("reason", "ticket 4")
	p.press("button", "Compensate")
	p.sees("ticket 4")
	p.Await("order/o-1014", saga.Compensated)
	p.sees("compensated")
}

func TestAPageFollowsItsFacts(t *testing.T) {
	p := newPerson(t)
	p.open("/dead-letters")
	p.sees("no answer in 5s")
	desk, err := repair.New(repair.Config{Pool: p.Pool})
	require.NoError(t, err)
	_, err = desk.Discard(t.Context(), repair.Filter{Class: "timeout"}, admin.Actor{Name: "bob", Reason: "ticket 5"})
	require.NoError(t, err)
	testkit.Wait(t, "the row to go", func() (bool, error) {
		var have string
		err := chromedp.Run(p.ctx, chromedp.Evaluate(`document.body.innerText`, &have))
		return !strings.Contains(have, "no answer in 5s"), err
	})
	p.quiet()
}

// shots returns the addresses of the pictures, by name.
func (p *person) shots() map[string]string {
	if p.loan == "" {
		p.loan = p.Loan("l-1")
		p.Expect("shipped", "o-20")
		p.Schedules()
		p.Rebuilds()
	}
	letter := p.address("/dead-letter", "db", "order", "id", p.letter)
	return map[string]string{
		"overview": p.address("/"), "sagas": p.address("/sagas"), "saga": p.address("/saga", "db", "order", "id", "order/o-1013"),
		"questions": p.address("/questions"), "saga-answer": p.address("/saga/answer", "db", "order", "id", p.loan, "step", "approval"),
		"expectations": p.address("/expectations"), "actions": p.address("/actions"), "schedules": p.address("/schedules"), "rebuilds": p.address("/rebuilds"),
		"flows": p.address("/flows"), "flow": p.address("/flow", "flow", "shop", "id", "w-2"),
		"saga-act":     p.address("/saga/act", "db", "order", "id", "order/o-1013", "do", "retry", "step", "inventory"),
		"dead-letters": p.address("/dead-letters"), "dead-letter": letter, "held": p.address("/held"), "messages": p.address("/messages", "q", "o-1013"),
		"relay": p.address("/relay"), "relay-rows": p.address("/relay/rows", "db", "order"),
		"relay-act":  p.address("/relay/act", "db", "order", "do", "retry", "topic", "shop.delivery.commands"),
		"definition": p.address("/definition", "db", "order", "hash", p.parcels, "against", p.first),
		"definition-start": p.address("/definition/start", "db", "order", "hash", p.first, "key", "o-1020",
			"input", `{"customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1}`),
		"definition-move": p.address("/definition/move", "db", "order", "from", p.first, "to", p.parcels),
	}
}

// Every page fits a phone's screen, and has a name and a heading; every field has a label.
func TestPagesFitAndAreNamed(t *testing.T) {
	p := newPerson(t)
	p.signIn()
	const wrong = `[
		document.documentElement.scrollWidth > innerWidth ? "the page is " + document.documentElement.scrollWidth + " wide, of " + innerWidth : "",
		document.querySelectorAll("h1").length !== 1 ? "not one h1" : "",
		document.title.length < 10 ? "no title" : "",
		...[...document.querySelectorAll("input:not([type=hidden]), select, textarea")].filter((f) => !f.labels.length).map((f) => "no label: " + f.name),
		...[...document.querySelectorAll("a, button")].filter((a) => !a.textContent.trim()).map((a) => "no text: " + a.outerHTML),
		...[...document.querySelectorAll("[id]")].filter((e) => document.querySelectorAll("#" + CSS.escape(e.id)).length > 1).map((e) => "twice: " + e.id),
	].filter(Boolean).join("\n")`
	for name, address := range p.shots() {
		for _, width := range []int64{360, 1200} {
			var found string
			p.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(address), chromedp.WaitReady("main"), chromedp.Evaluate(wrong, &found))
			require.Empty(t, found, "%s, %d wide", name, width)
		}
	}
	p.quiet()
}

// On a phone the error of each row is on the screen, and a row is not higher than a few lines.
func TestOnAPhoneErrorsAreSeenAndRowsAreLow(t *testing.T) {
	p := newPerson(t)
	const wrong = `[...document.querySelectorAll("table.list tbody tr")].flatMap((row) => {
		const box = row.getBoundingClientRect(), error = row.querySelector("td.error, td.why");
		const at = error && error.textContent.trim() ? error.getBoundingClientRect() : null;
		return [box.height > 190 ? "a row is " + box.height + " high: " + row.textContent : "",
			at && (at.left < 0 || at.right > innerWidth || at.width < 200) ? "the error is at " + at.left + " to " + at.right : ""];
	}).filter(Boolean).join("\n")`
	for _, name := range []string{"dead-letters", "held", "sagas", "flows", "relay", "relay-rows"} {
		var found string
		var rows int
		p.do(chromedp.EmulateViewport(390, 844), chromedp.Navigate(p.shots()[name]), chromedp.WaitReady("main"), chromedp.Evaluate(wrong, &found),
			chromedp.Evaluate(`document.querySelectorAll("table.list tbody tr").length`, &rows))
		require.Empty(t, found, name)
		require.NotZero(t, rows, name)
	}
}

// An open page whose server has gone does not look as if it were current.
func TestAPageWhoseServerHasGoneSaysSo(t *testing.T) {
	p := newPerson(t)
	p.open("/dead-letters")
	p.sees("no answer in 5s")
	p.stop()
	p.sees("Connection lost. This page shows the state as of ")
	p.sees("no answer in 5s")
}

func TestScreenshots(t *testing.T) {
	p := newPerson(t)
	p.signIn()
	for name, address := range p.shots() {
		p.shoot(name, address, 1200, "light")
	}
	p.shoot("overview-dark", p.shots()["overview"], 1200, "dark")
	p.shoot("saga-dark", p.shots()["saga"], 1200, "dark")
	for _, name := range []string{"overview", "saga", "sagas", "dead-letters", "held", "relay", "relay-rows"} {
		p.shoot(name+"-narrow", p.shots()[name], 390, "light")
	}
}

func (p *person) shoot(name, address string, width int64, scheme string) {
	p.t.Helper()
	var shot []byte
	p.do(
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(width, 800), chromedp.Navigate(address), chromedp.WaitReady("main"), chromedp.FullScreenshot(&shot, 100),
	)
	picture, err := png.Decode(bytes.NewReader(shot))
	require.NoError(p.t, err)
	require.GreaterOrEqual(p.t, picture.Bounds().Dx(), int(width))
	require.False(p.t, plain(picture), "%s is of one colour", name)
	if *screenshots != "" {
		require.NoError(p.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), shot, 0o644))
	}
}

func plain(picture image.Image) bool {
	b := picture.Bounds()
	first := picture.At(b.Min.X, b.Min.Y)
	for y := b.Min.Y; y < b.Max.Y; y += 7 {
		for x := b.Min.X; x < b.Max.X; x += 7 {
			if picture.At(x, y) != first {
				return false
			}
		}
	}
	return true
}
