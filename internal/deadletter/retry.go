package deadletter

import (
	"strings"

	"github.com/troupe-go/troupe/envelope"
)

// Headers of a message on a retry topic. Handlers and dead letters do not get them.
const (
	RetryPrefix = "__troupe.retry."
	RetryTopic  = RetryPrefix + "topic" // the message's first topic
)

// WithoutRetry returns headers without the headers of retry topics.
func WithoutRetry(hs []envelope.Header) []envelope.Header {
	own := make([]envelope.Header, 0, len(hs))
	for _, h := range hs {
		if !strings.HasPrefix(h.Key, RetryPrefix) {
			own = append(own, h)
		}
	}
	return own
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
