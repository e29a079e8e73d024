package console

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/jsontext"
)

const (
	mostShown    = 64 << 10 // bytes of a payload on a page; a download has all of it
	mostPayloads = 4        // requests that read whole payloads at the same time
)

// reserve waits until fewer than mostPayloads requests hold payloads, and returns the function that ends this one's turn. A payload
// has many megabytes, and reading it takes several times as many. Pages without payloads do not wait.
func (c *Console) reserve(ctx context.Context, p *page) (release func(), err error) {
	if !p.payloads {
		return func() {}, nil
	}
	select {
	case c.payloads <- struct{}{}:
		return func() { <-c.payloads }, nil
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "%d other requests read payloads: try again", mostPayloads)
	}
}

// pretty returns JSON with two spaces of indent, or the unchanged text if it is large or deep.
func pretty(v any) string {
	var text []byte
	switch v := v.(type) {
	case json.RawMessage:
		text = v
	default:
		text, _ = json.Marshal(v)
	}
	return string(jsontext.Indent(text, ""))
}

// cut returns the first mostShown bytes of a text, without part of a character.
func cut(text string) string {
	if len(text) <= mostShown {
		return text
	}
	n := mostShown
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) + "…"
}

// shown returns the part of a payload that a page shows.
func shown(p repair.Payload) string {
	switch {
	case isCut(p) && p.JSON != nil:
		return cut(string(p.JSON[:mostShown+1]))
	case p.JSON != nil:
		return cut(pretty(p.JSON))
	}
	return cut(p.Hex)
}

// isCut reports whether a page shows a part of a payload only.
func isCut(p repair.Payload) bool { return len(p.JSON) > mostShown || len(p.Hex) > mostShown }

// download answers the whole payload of a dead letter, as JSON if it can be read as such: with edited=1 what a redrive sends, else
// as the message came.
func (c *Console) download(w http.ResponseWriter, r *http.Request) {
	u, ok := c.enter(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.limit)
	defer cancel()
	text, name, err := c.wholePayload(ctx, r, u)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	release, err := c.sending.take(clientOf(r, u), u.name != "", len(text))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	defer release()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	_, _ = w.Write(text) // the client may be gone
}

func (c *Console) wholePayload(ctx context.Context, r *http.Request, u user) (text []byte, name string, err error) {
	values := r.URL.Query()
	if err := checkText(values); err != nil {
		return nil, "", err
	}
	p := c.pages["/dead-letter"]
	a, err := c.askOf(p, values, u, p.role())
	if err != nil {
		return nil, "", err
	}
	end, err := c.turns.take(ctx, clientOf(r, u))
	if err != nil {
		return nil, "", err
	}
	defer end()
	release, err := c.reserve(ctx, p)
	if err != nil {
		return nil, "", err
	}
	defer release()
	facts, err := readLetter(ctx, a)
	if err != nil {
		return nil, "", err
	}
	l := facts.(letterFacts).Letter
	payload := l.Payload
	if values.Get("edited") != "" {
		if l.Edit == nil {
			return nil, "", refuse(http.StatusNotFound, "the dead letter was not edited")
		}
		payload = *l.Edit
	}
	return contents(l.ID, payload)
}

func contents(id uuid.UUID, p repair.Payload) (text []byte, name string, err error) {
	if p.JSON != nil {
		return p.JSON, id.String() + ".json", nil
	}
	text, err = hex.DecodeString(p.Hex)
	return text, id.String() + ".bin", err
}
