package deadletter

import (
	"strings"

	"github.com/troupe-go/troupe/envelope"
)

// Headers that a message has while it is on a retry topic. Handlers and dead letters do not see them.
const (
	RetryPrefix = "__troupe.retry."
	RetryTopic  = RetryPrefix + "topic" // where it came from first
)

// WithoutRetry returns headers as they came first.
func WithoutRetry(hs []envelope.Header) []envelope.Header {
	own := make([]envelope.Header, 0, len(hs))
	for _, h := range hs {
		if !strings.HasPrefix(h.Key, RetryPrefix) {
			own = append(own, h)
		}
	}
	return own
}

// FirstTopic returns the topic that a message of topic came from first, by its headers.
func FirstTopic(topic string, hs []envelope.Header) string {
	for _, h := range hs {
		if h.Key == RetryTopic {
			return string(h.Value)
		}
	}
	return topic
}
