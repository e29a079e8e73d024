// Package wal implements the client side of logical replication: slots, the stream of a slot, and the messages of pgoutput
// (protocol 1).
//
// It decodes the messages that an outbox needs: transactions, inserts, and messages of pg_logical_emit_message. Of an update it decodes
// only the table. It skips everything else on the stream. Only Report acknowledges anything to the server.
//
// Sources: the chapters "Logical Replication Message Formats" and "Streaming Replication Protocol" of the Postgres documentation.
package wal

import (
	"fmt"
	"strconv"
	"strings"
)

// An LSN is a position in the write-ahead log. Zero: none.
type LSN uint64

// ParseLSN parses the text form, as in 16/B374D848.
func ParseLSN(text string) (LSN, error) {
	high, low, found := strings.Cut(text, "/")
	if found {
		h, err := strconv.ParseUint(high, 16, 32)
		if err == nil {
			var l uint64
			if l, err = strconv.ParseUint(low, 16, 32); err == nil {
				return LSN(h<<32 | l), nil
			}
		}
	}
	return 0, fmt.Errorf("wal: no lsn: %.40q", text)
}

// String returns the text form.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }
