//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axe returns the text of axe-core, at the version in package-lock.json. It is downloaded into a temporary folder, and is in
// no program of this project.
func axe(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries", "10")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "npm ci: %s", out)
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	return string(text)
}

// every returns the addresses of all pages, by name.
func (p *person) every() map[string]string {
	p.t.Helper()
	all := p.shots()
	for name, address := range map[string]string{
		"sign-in": p.address("/sign-in"), "error": p.address("/nowhere"), "definitions": p.address("/definitions"),
		"letters": p.address("/dead-letters/list", "db", "order"), "no letters": p.address("/dead-letters", "key", "nobody"),
		"letters-act": p.address("/dead-letters/act", "db", "order", "do", "discard", "class", "timeout"),
		"held-key":    p.address("/held/key", "db", "order", "place", "shop.billing.commands/0/9"),
		"no sagas":    p.address("/sagas", "key", "nobody"), "no messages": p.address("/messages", "q", "nobody"),
		"compensated": p.address("/saga", "db", "order", "id", "order/o-1012"),
		"a test":      p.address("/saga/fixture", "db", "order", "id", "order/o-1012"),
		"one type":    p.address("/sagas", "variable", "payment_id", "value", "p-1"), "no flows": p.address("/flows", "key", "nobody"),
		"refused flow": p.address("/flow", "id", "w-3"), "odd flow": p.address("/flow", "id", "w-4"), "flow under way": p.address("/flow", "id", "w-5"),
		"bad start": p.address("/definition/start", "db", "order", "hash", p.first, "key", "o-1020", "input", "{", "hop", "x"),
		"no move":   p.address("/definition/move", "db", "order", "from", p.first, "to", p.goods),
		"work":      p.address("/work", "id", p.work()),
	} {
		all[name] = address
	}
	return all
}

// work starts a redrive that runs for as long as the test: of three dead letters, one every hundred seconds.
func (p *person) work() (id string) {
	p.t.Helper()
	form := url.Values{"db": {"order"}, "do": {"redrive"}, "class": {"permanent"}, "rate": {"0.01"}, "actor": {"ann"}}
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.address("/dead-letters/act"), strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	defer a.Body.Close()
	var work struct{ ID string }
	require.NoError(p.t, json.NewDecoder(a.Body).Decode(&work))
	require.NotEmpty(p.t, work.ID)
	return work.ID
}

// A violation is one finding of axe-core.
type violation struct {
	Rule  string   `json:"rule"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// No page has a violation of any rule of axe-core that is not experimental.
func TestPagesAreAccessible(t *testing.T) {
	source := axe(t)
	p := newPerson(t)
	p.signIn()
	const look = `axe.run().then((r) => r.violations.map((v) => ({rule: v.id, help: v.help, nodes: v.nodes.map((n) => n.html.slice(0, 200) + " " + n.failureSummary)})))`
	awaited := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	for name, address := range p.every() {
		for _, as := range []struct {
			scheme string
			width  int64
		}{{"light", 1200}, {"dark", 1200}, {"light", 360}} {
			var found []violation
			p.do(
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: as.scheme}}),
				chromedp.EmulateViewport(as.width, 900), chromedp.Navigate(address), chromedp.WaitReady("main"),
				chromedp.Evaluate(source, nil), chromedp.Evaluate(look, &found, awaited),
			)
			for _, one := range found {
				t.Error(fmt.Sprintf("%s, %s, %d wide: %s (%s)\n  %s", name, as.scheme, as.width, one.Help, one.Rule, strings.Join(one.Nodes, "\n  ")))
			}
		}
	}
}
