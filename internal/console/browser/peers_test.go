//go:build browser

package browser

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var (
	temporalUI = flag.String("temporal", "", "`URL` of a Temporal UI with workflows that have timed out")
	riverUI    = flag.String("river", "", "`URL` of a River UI with discarded jobs")
)

// TestTasksOfPeers counts the clicks of tasks in the consoles of other products, which must run already. A step is the XPath of an
// element to click.
func TestTasksOfPeers(t *testing.T) {
	if *temporalUI == "" && *riverUI == "" {
		t.Skip("no console of another product: set -temporal or -river")
	}
	const discarded, job, retry = `//a[contains(.,'Discarded')]`, `(//a[contains(.,'charge_card')])[1]`, `//button[contains(.,'Retry')]`
	const timedOut, confirm = `(//a[starts-with(normalize-space(.),'order-')])[2]`, `//*[@role='dialog' or self::dialog]//button[@data-testid='confirm-modal-button' or contains(.,'Confirm') or contains(.,'Reset')][last()]`
	for _, task := range []struct {
		root, name, sees string
		steps            []string
	}{
		{*riverUI, "river: which order is stuck, and why", "bank answered 502", []string{discarded, job}},
		{*riverUI, "river: repair one", "", []string{discarded, job, retry}},
		{*riverUI, "river: repair the 20 of a page", "", []string{discarded, `(//input[@type='checkbox'])[1]`, retry}},
		{*temporalUI, "temporal: which order is stuck, and why", "Timed Out", []string{timedOut}},
		{*temporalUI, "temporal: repair one", "", []string{timedOut, `//button[@aria-label='Open Menu' or contains(@id,'menu') and contains(@aria-controls,'actions')]`, `//*[@role='menuitem' and contains(.,'Reset')]`, confirm}},
		{*temporalUI, "temporal: repair many", "", []string{`//button[contains(.,'Timed Out')]|//a[contains(.,'Timed Out')]`, `(//thead//input[@type='checkbox'])[1]`, `//button[contains(.,'Reset')]`, confirm}},
	} {
		if task.root == "" {
			continue
		}
		p := newBrowser(t, task.root)
		p.do(chromedp.EmulateViewport(1600, 1000), chromedp.Navigate(task.root), chromedp.WaitReady("body"))
		begun := time.Now()
		clicks := 0
		for _, step := range task.steps {
			p.at(step, "found.click()")
			clicks++
		}
		if task.sees != "" {
			p.sees(task.sees)
		}
		t.Log(fmt.Sprintf("%-46s %2d clicks  %5.2f s", task.name, clicks, time.Since(begun).Seconds()))
	}
}
