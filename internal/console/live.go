package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/door"
)

const (
	liveEvery = 2 * time.Second
	liveFor   = 10 * time.Minute // then the browser connects again
	liveWrite = 10 * time.Second // for a browser to receive an event
)

// live notifies an open page when its facts have changed. It reads them as the page does, once for all streams of the page.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	u, ok := c.enter(w, r)
	if !ok {
		return
	}
	at, err := url.Parse(r.URL.Query().Get("page"))
	path := ""
	if err == nil {
		path, ok = strings.CutPrefix(at.Path, c.cfg.Path)
	}
	p := c.pages[path]
	if err != nil || !ok || p == nil || !p.live {
		c.fail(w, r, refuse(http.StatusBadRequest, "page: want the address of a page that lives"))
		return
	}
	values := at.Query()
	if err := checkText(values); err != nil {
		c.fail(w, r, err)
		return
	}
	asked, err := c.askOf(p, values, u, p.role())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	release, err := c.streams.take(clientOf(r, u), u.name != "")
	if err != nil {
		c.fail(w, r, err)
		return
	}
	defer release()
	c.follow(w, r, asked)
}

// follow writes an event after each look of a page: changed, with the new state, or same. The browser knows by the latter how old
// its facts are.
func (c *Console) follow(w http.ResponseWriter, r *http.Request, a *ask) {
	look, leave, err := c.looks.join(lookKey(a), func(ctx context.Context) string {
		facts, err := c.look(ctx, a)
		if err != nil {
			return "gone"
		}
		return stateOf(facts)
	})
	if err != nil {
		c.fail(w, r, err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold the events back
	out := http.NewResponseController(w)
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
	shown := r.URL.Query().Get("state")
	ctx, cancel := context.WithTimeout(r.Context(), liveFor)
	defer cancel()
	for after := look.begun(); ; {
		state, number, ok := look.wait(ctx, after)
		if !ok {
			return
		}
		after = number
		if c.cfg.Private && c.userOf(r).name == "" {
			return // signed out meanwhile
		}
		line := "event: same\ndata:\n\n"
		if state != shown {
			shown, line = state, fmt.Sprintf("event: changed\ndata: %s\n\n", state)
		}
		_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // in place of the server's time-out, which counts from the request
		if _, err := w.Write([]byte(line)); err != nil || out.Flush() != nil {
			return
		}
	}
}

// look reads the facts of a live page.
func (c *Console) look(ctx context.Context, a *ask) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	release, err := c.reserve(ctx, a.page)
	if err != nil {
		return nil, err
	}
	defer release()
	return a.page.read(ctx, a)
}

// lookKey returns the key of a look: requests with the same key have the same facts.
func lookKey(a *ask) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s?%s", a.page.path, a.values.Encode())
	for _, s := range a.Console.sources {
		fmt.Fprintf(&b, " %d", a.user.roles.on(s.Name))
	}
	return b.String()
}

// clientOf returns the client whose live pages, requests and answers are counted together: a signed-in user, or else an address.
func clientOf(r *http.Request, u user) string {
	if u.name == "" || u.shared {
		return "address " + door.AddressOf(r)
	}
	return "user " + u.name
}
