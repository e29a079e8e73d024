package outboxrow

import (
	"bytes"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// Text holds the key and the headers of a row as parameters of the statement that inserts it. Text that is not ASCII is in UTF8Key and
// UTF8Headers, as bytes: the server would take a parameter of type text or jsonb for text in client_encoding, which is the database's
// encoding unless the client sets it. The statement stores these bytes as text if the database is in UTF-8, and else as key_bytes and
// raw_headers: no other encoding has all characters.
type Text struct {
	Key         *string
	UTF8Key     []byte
	Headers     []byte // {} if they are in UTF8Headers
	UTF8Headers []byte
	RawHeaders  []byte // the raw headers; if UTF8Headers is set, the same headers, for a database that is not in UTF-8
}

// Text returns the parameters.
func (r *Row) Text() (Text, error) {
	t := Text{Key: r.Key, Headers: r.Headers, RawHeaders: r.RawHeaders}
	if r.Key != nil && !pgtext.IsASCII(*r.Key) {
		t.Key, t.UTF8Key = nil, []byte(*r.Key)
	}
	if r.RawHeaders == nil && (!pgtext.IsASCII(r.Headers) || bytes.Contains(r.Headers, []byte(`\u202`))) { // json.Marshal escapes U+2028 and U+2029
		hs, err := r.headerList()
		if err != nil {
			return t, err
		}
		t.Headers, t.UTF8Headers, t.RawHeaders = []byte("{}"), r.Headers, envelope.MarshalHeaders(hs)
	}
	return t, nil
}
