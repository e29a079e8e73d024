package console

import (
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/plain"
)

//go:embed templates/*.html static/*
var files embed.FS

// parse parses the templates, each with the layout.
func (c *Console) parse() (map[string]*template.Template, error) {
	layout, err := template.New("").Funcs(c.words()).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	entries, err := files.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*template.Template)
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		one, err := layout.Clone()
		if err == nil {
			_, err = one.ParseFS(files, "templates/"+e.Name())
		}
		if err != nil {
			return nil, err
		}
		all[name] = one
	}
	return all, nil
}

// topicName matches a name that Kafka allows for a topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// topicForLink returns a failed row's topic if Kafka allows the name, and otherwise "". A list shortens any other name, and a form may change its
// characters, so it cannot identify a row.
func topicForLink(topic string) string {
	if topicName.MatchString(topic) {
		return topic
	}
	return ""
}

// words returns the functions for templates.
func (c *Console) words() template.FuncMap {
	return template.FuncMap{
		"link": func(page string, values ...any) string {
			q := url.Values{}
			for i := 0; i+1 < len(values); i += 2 {
				if text := fmt.Sprint(values[i+1]); text != "" {
					q.Set(fmt.Sprint(values[i]), text)
				}
			}
			if page, _, _ = strings.Cut(page, "#"); len(q) == 0 {
				return c.cfg.Path + page
			}
			return c.cfg.Path + page + "?" + q.Encode()
		},
		"topicForLink": topicForLink,
		"go":           func(address string) string { return c.cfg.Path + address },
		"urgency": func(name string) string {
			return map[string]string{"now": "Now", "soon": "Soon", "know": "For information"}[name]
		},
		"keys":         func() []shortcut { return shortcuts },
		"short":        short,
		"bytes":        byteCount,
		"int":          func(n int64) int { return int(n) },
		"list":         func(all ...string) []string { return all },
		"kept":         func(samples []relays.Sample) *keptChart { return chartKept(samples, time.Now()) },
		"relayState":   relayState,
		"relayBadge":   relayBadge,
		"table":        tableName,
		"actionName":   actionName,
		"happened":     happened,
		"count":        count[int],
		"pretty":       pretty,
		"cut":          cut,
		"shown":        shown,
		"isCut":        isCut,
		"mostShown":    func() int64 { return mostShown },
		"clip":         clip,
		"argument":     func(value any) string { return plain.Argument(fmt.Sprint(value)) },
		"operand":      func(value any) string { return plain.Operand(fmt.Sprint(value)) },
		"tail":         tail,
		"namesMessage": namesMessage,
		"ago":          func(at time.Time) string { return ago(time.Since(at)) },
		"iso":          func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
		"utc":          func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") },
		"millis":       func(at time.Time) string { return at.UTC().Format("15:04:05.000") },
		"class":        func(text any) string { return strings.ReplaceAll(fmt.Sprint(text), "_", " ") },
		"several": func() bool {
			return len(c.sources) > 1
		},
		"dict": func(values ...any) map[string]any {
			m := make(map[string]any, len(values)/2)
			for i := 0; i+1 < len(values); i += 2 {
				m[fmt.Sprint(values[i])] = values[i+1]
			}
			return m
		},
	}
}

// namesMessage reports whether a header's value is an id by which the page Messages finds something.
func namesMessage(header string) bool {
	switch header {
	case ce.HeaderID, ce.HeaderCorrelationID, ce.HeaderCausationID, ce.HeaderSagaID:
		return true
	}
	return false
}

// byteCount returns a size in a readable unit.
func byteCount(n int64) string {
	size, unit := float64(n), 0
	for ; size >= 1000 && unit < 4; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, []string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

// readStatic reads the static files into memory, once: an answer that a client reads slowly then holds no copy of its file.
func readStatic() (map[string][]byte, error) {
	entries, err := files.ReadDir("static")
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(entries))
	for _, e := range entries {
		if all[e.Name()], err = files.ReadFile("static/" + e.Name()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *Console) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, is := c.files[name]
	if !is {
		c.fail(w, r, refuse(http.StatusNotFound, "there is no such file: %s", name))
		return
	}
	w.Header().Set("Content-Type", map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
	}[path.Ext(name)])
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text)
}

// openAPI serves the description of every page's JSON.
func (c *Console) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(c.files["openapi.json"])
}
