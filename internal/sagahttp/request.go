package sagahttp

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// asked has the parts of a request.
type asked struct {
	saga, key   string
	definition  *saga.Definition
	wait        time.Duration
	body        []byte
	coordinator *coordinator.Coordinator
	large       bool // it has a place among the large ones
}

func (a asked) id() string { return a.saga + "/" + a.key }

func (a asked) location() string {
	return "/sagas/" + url.PathEscape(a.saga) + "/" + url.PathEscape(a.key)
}

func (s *Sagas) read(w http.ResponseWriter, r *http.Request) (a asked, err error) {
	a = asked{saga: r.PathValue("saga"), key: r.PathValue("key"), wait: waitOf(r.Header)}
	a.definition = s.definitions[a.saga]
	switch {
	case a.definition == nil:
		return a, refuse(http.StatusNotFound, "there is no saga %.64q", a.saga)
	case !utf8.ValidString(a.key) || strings.Contains(a.key, "\x00") || len(a.key) > 1024:
		return a, refuse(http.StatusBadRequest, "the key: want at most 1024 bytes of UTF-8, and no zero byte")
	case r.Method != http.MethodPost:
		return a, nil
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != envelope.JSON {
		return a, refuse(http.StatusUnsupportedMediaType, "want Content-Type: application/json")
	}
	a.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return a, refuse(http.StatusRequestEntityTooLarge, "more than %d bytes", mostBody)
	case err != nil:
		return a, refuse(http.StatusBadRequest, "the body ended early")
	}
	return a, nil
}

// waitOf returns the time of the preference wait (RFC 7240), at most longestWait. A preference that cannot be read is ignored.
func waitOf(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16); err == nil && strings.EqualFold(strings.TrimSpace(name), "wait") {
				return min(time.Duration(n)*time.Second, longestWait)
			}
		}
	}
	return 0
}

// response is the JSON of a response.
type response struct {
	status   int
	location string
	place    places // is left when the response is written; nil: none

	ID     string      `json:"id,omitempty"`
	Status saga.Status `json:"status,omitempty"`
	// Existed is true if the request to start the saga found it.
	Existed bool              `json:"existed,omitempty"`
	Cancel  saga.CancelResult `json:"cancel,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	// Data has the variables.
	Data  json.RawMessage `json:"data,omitempty"`
	Error string          `json:"error,omitempty"`
}

// of returns the response with the state of the saga.
func (out response) of(st saga.State, a asked) (response, error) {
	data, err := saga.WriteFields(st.Data)
	if err != nil {
		return out, err
	}
	out.ID, out.Status, out.Cancel, out.Reason, out.Data = st.ID(), st.Status, st.Cancel, st.Reason, data
	if out.status = http.StatusOK; !st.Ended() {
		out.status, out.location = http.StatusAccepted, a.location()
	}
	return out, nil
}

// large reports whether the response has many variables.
func (out response) large() bool { return len(out.Data) > smallBody }

func (out response) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", envelope.JSON)
	h.Set("Cache-Control", "no-store")
	if out.location != "" {
		h.Set("Location", out.location)
	}
	switch out.status {
	case http.StatusAccepted, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "6")
	}
	w.WriteHeader(out.status)
	_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
}
