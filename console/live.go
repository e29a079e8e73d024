package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

const (
	liveEvery = 2 * time.Second
	liveFor   = 10 * time.Minute // then the browser connects again
)

// live notifies an open page when its facts have changed. It reads them as the page does.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	u, ok := c.enter(w, r)
	if !ok {
		return
	}
	at, err := url.Parse(r.URL.Query().Get("page"))
	if err != nil || c.pages[at.Path] == nil || !c.pages[at.Path].live {
		c.fail(w, r, refuse(http.StatusBadRequest, "page: want the address of a page that lives"))
		return
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		c.fail(w, r, refuse(http.StatusServiceUnavailable, "%d pages are live already", mostLive))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	shown := r.URL.Query().Get("state")
	ctx, cancel := context.WithTimeout(r.Context(), liveFor)
	defer cancel()
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		if u = c.userOf(r); c.cfg.Private && u.name == "" {
			return // signed out meanwhile
		}
		state := "gone"
		if facts, err := c.look(ctx, c.pages[at.Path], at.Query(), u); err == nil {
			state = stateOf(facts)
		}
		line := ": as before\n\n"
		if state != shown {
			shown, line = state, fmt.Sprintf("event: changed\ndata: %s\n\n", state)
		}
		if _, err := w.Write([]byte(line)); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-c.works.ctx.Done(): // Close
			return
		}
	}
}

func (c *Console) look(ctx context.Context, p *page, values url.Values, u user) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	release, err := c.reserve(ctx, p)
	if err != nil {
		return nil, err
	}
	defer release()
	return p.read(ctx, &ask{c, p, values, repair.By{Actor: u.name}})
}
