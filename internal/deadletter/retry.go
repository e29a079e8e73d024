package deadletter

import (
	"strings"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/inbox"
)

// Headers of a message on a retry topic. Handlers and dead letters do not get them.
const (
	RetryPrefix   = "__troupe.retry."
	RetryTopic    = RetryPrefix + "topic"    // the message's first topic
	RetryIdentity = RetryPrefix + "identity" // its identity there: the relay may have added a source since
)

// WithoutRetry returns headers without the headers of retry topics, and without a source that the relay added on the way there: the
// message keeps its identity.
func WithoutRetry(hs []envelope.Header) []envelope.Header {
	first := FirstIdentity(hs)
	var m envelope.Message
	if first != "" && m.SetHeaders(hs) == nil && inbox.Identity(m) != first {
		m.Source = ""
	}
	added := first != "" && m.ID != "" && m.Source == "" && inbox.Identity(m) == first
	own := make([]envelope.Header, 0, len(hs))
	for _, h := range hs {
		if !strings.HasPrefix(h.Key, RetryPrefix) && !(added && h.Key == ce.HeaderSource) {
			own = append(own, h)
		}
	}
	return own
}

// FirstIdentity returns the identity that a message on a retry topic had on its first topic, or "".
func FirstIdentity(hs []envelope.Header) string {
	for _, h := range hs {
		if h.Key == RetryIdentity {
			return string(h.Value)
		}
	}
	return ""
}

// FirstTopic returns the first topic of a message that was read from topic, by its headers.
func FirstTopic(topic string, hs []envelope.Header) string {
	for _, h := range hs {
		if h.Key == RetryTopic {
			return string(h.Value)
		}
	}
	return topic
}
