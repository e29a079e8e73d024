package ambassador

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
)

// A Mode is the form of a posted command. In both modes the payload is the body.
type Mode string

// The modes.
const (
	// CloudEvents is the binary mode of the HTTP binding: each attribute is a header (ce-id, ce-type, ce-correlationid and so
	// on), and the content type is the payload's.
	CloudEvents Mode = "cloudevents"
	// Plain sends no such headers: the service distinguishes requests by their path.
	Plain Mode = "plain"
)

// checked are the attributes by which the ambassador selects the route and recognises the message.
var checked = []string{
	ce.HeaderSpecVersion, ce.HeaderID, ce.HeaderSource, ce.HeaderType, ce.HeaderSubject, ce.HeaderTime, ce.HeaderCorrelationID, ce.HeaderCausationID,
	ce.HeaderOutcome, ce.HeaderIdempotencyKey, ce.HeaderSagaID, ce.HeaderSagaStep, ce.HeaderSagaOperation,
}

// attributes returns m's attributes as HTTP headers of CloudEvents. Headers that are no attributes are left out, and so is each in
// Extra with a name of checked, also in another case: of these the service gets only values that the ambassador has used. Of other repeated
// ones it gets the first.
func attributes(m envelope.Message) http.Header {
	header := make(http.Header, 16)
	extra := m.Extra
	m.Extra = nil
	for _, h := range m.Headers() {
		addAttribute(header, h)
	}
	for _, h := range extra {
		if !slices.ContainsFunc(checked, func(name string) bool { return strings.EqualFold(name, h.Key) }) {
			addAttribute(header, h)
		}
	}
	return header
}

func addAttribute(header http.Header, h envelope.Header) {
	if name, is := strings.CutPrefix(h.Key, "ce_"); is && checkHeader("ce-"+name, nil) == nil && len(header.Values("ce-"+name)) == 0 {
		header.Set("ce-"+name, encoded(string(h.Value)))
	}
}

// encoded returns an attribute's value as CloudEvents' HTTP binding 3.1.3.2 requires: spaces, quotes, percent signs and all
// characters that are not printable ASCII are escaped, byte by byte of their UTF-8.
func encoded(value string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for n < len(value) && plain(value[n]) {
		n++
	}
	if n == len(value) {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
