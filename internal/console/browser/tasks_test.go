//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
)

// An effort counts the clicks and the typed characters of a task from the open overview, with the time of a scripted browser and the
// longest load of a page.
type effort struct {
	clicks, keys int
	took, load   time.Duration
}

// A worker is a person whose clicks and keys are counted.
type worker struct {
	*person
	effort effort
}

func (w *worker) click(tag, text string) {
	w.t.Helper()
	w.effort.clicks++
	w.press(tag, text)
}

// write types into the field that has the focus.
func (w *worker) write(text string) {
	w.t.Helper()
	w.effort.keys += len([]rune(text))
	w.do(chromedp.KeyEvent(text))
}

// shortcut presses a key as a browser reports it to the page: a key that the page has handled enters no character.
func (w *worker) shortcut(key string) {
	w.t.Helper()
	w.effort.keys++
	w.do(input.DispatchKeyEvent(input.KeyRawDown).WithKey(key), input.DispatchKeyEvent(input.KeyUp).WithKey(key))
}

// says waits until the page contains each text, and records how long the page took to load.
func (w *worker) says(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		w.sees(text)
	}
	w.at("//main", "") // once the page is complete
	var ms float64
	w.do(chromedp.Evaluate(`performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`, &ms))
	w.effort.load = max(w.effort.load, time.Duration(ms*float64(time.Millisecond)))
}

// heading waits until the page has that heading.
func (w *worker) heading(text string) {
	w.t.Helper()
	w.at(fmt.Sprintf(`//main//h1[normalize-space()='%s']`, text), "")
}

// focused waits until a field has the focus.
func (w *worker) focused(id string) {
	w.t.Helper()
	w.at(fmt.Sprintf(`//*[@id='%s']`, id), `if (document.activeElement !== found) return false`)
}

// TestSixTasks does the tasks of docs/console-tasks.md, each from the overview, and prints the clicks, keys and seconds.
func TestSixTasks(t *testing.T) {
	p := newPerson(t)
	p.signIn()
	const many = 1000
	for i := range many {
		p.Dead(100+i, stage.Letter{Key: fmt.Sprintf("o-%d", 5000+i), Type: "ChargeCard", Class: "transient", Error: "bank answered 502", Payload: "{}"})
	}
	tasks := []struct {
		name         string
		clicks, keys int
		do           func(*worker)
	}{
		{"which order is stuck, and why", 0, 0, func(w *worker) {
			w.says("Stuck the longest", "order/o-1013", "the warehouse answers 503")
		}},
		{"the same of an order that the customer names", 0, 8, func(w *worker) {
			w.shortcut("/")
			w.focused("find")
			w.write("o-1013\r")
			w.heading("Messages")
			w.says("the warehouse answers 503")
		}},
		{"repair one", 2, 8, func(w *worker) {
			w.click("a", "Retry inventory… of order/o-1013")
			w.focused("reason")
			w.write("ticket 1")
			w.click("button", "Retry inventory")
			w.says("ticket 1", "Received messages")
		}},
		{"repair a thousand", 2, 0, func(w *worker) {
			w.click("a", "Redrive 1000 dead letters…")
			w.sees("Redrive 1000 dead letters of order")
			w.click("button", "Redrive")
			w.says("of 1000", "by ann")
		}},
		{"the last actions of operators", 0, 0, func(w *worker) {
			w.says("Operators’ actions", "ann: retry saga order/o-1013", "ann: redrive")
		}},
		{"all actions of one operator", 1, 0, func(w *worker) {
			w.click("a", "ann")
			w.heading("Actions")
			w.says("ticket 1")
		}},
		{"is the relay healthy", 0, 0, func(w *worker) {
			w.says("active, 2 rows parked", "2 rows for shop.delivery.commands cannot be published")
		}},
		{"what changed since yesterday", 0, 0, func(w *worker) {
			w.says("Since yesterday", "dead letters", "new causes of dead letters")
		}},
	}
	var table strings.Builder
	for _, task := range tasks {
		w := &worker{person: p}
		p.open("/")
		p.sees("What needs a person")
		begun := time.Now()
		task.do(w)
		w.effort.took = time.Since(begun)
		require.Equal(t, task.clicks, w.effort.clicks, "clicks: %s", task.name)
		require.Equal(t, task.keys, w.effort.keys, "keys: %s", task.name)
		fmt.Fprintf(&table, "%-46s %2d clicks  %2d keys  %5.2f s  page loaded in %3d ms\n", task.name, w.effort.clicks, w.effort.keys, w.effort.took.Seconds(), w.effort.load.Milliseconds())
		if name := map[string]string{"repair one": "tasks-one", "repair a thousand": "tasks-thousand", "all actions of one operator": "tasks-who"}[task.name]; name != "" {
			var here string
			p.do(chromedp.Location(&here))
			p.shoot(name, here, 1440, "light")
		}
	}
	p.shoot("tasks-overview", p.address("/"), 1440, "light")
	t.Log("\n" + table.String())
	p.quiet()
}

// TestSingleKeys checks that a key opens a page or the help, and has no effect in a field or after the shortcuts are turned off, also on later pages.
func TestSingleKeys(t *testing.T) {
	w := &worker{person: newPerson(t)}
	open := func() (is bool) {
		w.do(chromedp.Evaluate(`document.getElementById("keys").open`, &is))
		return is
	}
	w.open("/")
	w.shortcut("d")
	w.heading("Dead letters")
	w.shortcut("j")
	var at string
	w.do(chromedp.Evaluate(`document.activeElement.getAttribute("href") || ""`, &at))
	require.Contains(t, at, "/dead-letters/list", "the first line has the focus")
	w.shortcut("/")
	w.focused("find")
	w.shortcut("?")
	require.False(t, open(), "a field takes the key")
	w.do(chromedp.Blur("#find", chromedp.ByQuery))
	w.shortcut("?")
	require.True(t, open())
	w.do(chromedp.Click("#keys-off", chromedp.ByQuery), chromedp.Click("#keys button", chromedp.ByQuery))
	require.False(t, open())
	w.shortcut("?")
	require.False(t, open(), "single keys are off")
	w.open("/")
	w.shortcut("?")
	require.False(t, open(), "the browser remembers it")
	w.quiet()
}
