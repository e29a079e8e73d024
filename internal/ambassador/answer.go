package ambassador

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-go/troupe/retry"
)

const maxReason = 500

// answer is the service's response to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	cut    bool // the body was larger than MaxBody, and is cut
}

// text returns the status with its standard name. The name in the service's response is not used, since it may contain
// anything.
func (a answer) text() string { return statusText(a.status) }

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// asJSON returns the body as a JSON value. A body that is valid JSON counts as JSON whatever its content type, since many
// services send JSON as text/plain.
func (a answer) asJSON() json.RawMessage {
	switch {
	case len(a.body) == 0:
		return nil
	case json.Valid(a.body) && utf8.Valid(a.body):
		return a.body
	}
	text, err := json.Marshal(strings.ToValidUTF8(string(a.body), "\uFFFD"))
	if err != nil {
		return nil // cannot happen: a string always has a JSON text
	}
	return text
}

// reason returns the reason that the service gives for a refusal.
func (a answer) reason() string {
	if a.cut {
		return a.text()
	}
	var says map[string]any
	if json.Unmarshal(a.body, &says) == nil {
		for _, field := range []string{"reason", "detail", "title"} {
			if text, ok := says[field].(string); ok && strings.TrimSpace(text) != "" {
				return short(strings.TrimSpace(text))
			}
		}
	}
	return a.text()
}

// refusal returns the body of a failure event.
func (a answer) refusal() json.RawMessage {
	var object map[string]json.RawMessage
	if !a.cut && json.Unmarshal(a.body, &object) == nil && object != nil && utf8.Valid(a.body) {
		return a.body
	}
	text, err := json.Marshal(struct {
		Status int    `json:"status"`
		Reason string `json:"reason"`
	}{a.status, a.reason()})
	if err != nil {
		return nil // cannot happen: a number and a string always have a JSON text
	}
	return text
}

func short(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxReason {
		return s
	}
	at := maxReason
	for !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at]
}

// wait returns the wait that the service asks for by Retry-After, in seconds or as a date, which is compared with the
// response's own date if it has one.
func (a answer) wait(now time.Time) time.Duration {
	value := strings.TrimSpace(a.header.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if most := int64(retry.MaxAfter / time.Second); err != nil || seconds > most {
			seconds = most
		}
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(a.header.Get("Date")); err == nil {
		now = date
	}
	return max(until.Sub(now), 0)
}

// elsewhere returns the target of a redirect, without its query and credentials, which may be secret.
func (a answer) elsewhere(from *url.URL) string {
	to, err := from.Parse(a.header.Get("Location"))
	if err != nil || to.Host == "" {
		return "nowhere"
	}
	return short((&url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}).String())
}
