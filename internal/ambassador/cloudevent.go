package ambassador

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-go/troupe/envelope"
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

// attributes returns m's attributes as HTTP headers of CloudEvents. Headers that are no attributes are left out. Of a repeated attribute, also in
// other letters, the service gets the value by which the ambassador has selected the route and recognises the message: the first one.
func attributes(m envelope.Message) http.Header {
	header := make(http.Header, 16)
	for _, h := range m.Headers() {
		if name, is := strings.CutPrefix(h.Key, "ce_"); is && checkHeader("ce-"+name, nil) == nil && header.Get("ce-"+name) == "" {
			header.Set("ce-"+name, encoded(string(h.Value)))
		}
	}
	return header
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
