package deadletter

import (
	"strconv"

	"github.com/troupe-go/troupe/envelope"
)

// Headers of a redriven message.
const (
	// HeaderRedrive holds how often the message was redriven, in decimal text. A redriven message is no duplicate of the
	// message before its redrive.
	HeaderRedrive = "__troupe.redrive"
	// HeaderRedriveGroup names the consumer group that a redriven event is for. Other groups that read its topic skip it: they
	// have handled it, or will handle it, at its first offset.
	HeaderRedriveGroup = "__troupe.redrive.group"
)

// Redrives returns how often the message with these headers was redriven for group; a redrive for another group does not count.
func Redrives(headers []envelope.Header, group string) (n int) {
	ours := true
	for _, h := range headers {
		switch h.Key {
		case HeaderRedrive:
			if parsed, err := strconv.ParseUint(string(h.Value), 10, 31); err == nil {
				n = int(parsed)
			}
		case HeaderRedriveGroup:
			ours = string(h.Value) == group
		}
	}
	if !ours {
		return 0
	}
	return n
}
