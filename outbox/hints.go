package outbox

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const notify = "SELECT pg_notify('" + Channel + "', topic) FROM unnest($1::text[]) AS topic"

// mostHints is how many topics one commit names; of more it says that there is something.
const mostHints = 8

// hints says which commits notify, and of what: of the same at most once in some time. One that falls out costs its readers at
// most their next look.
type hints struct {
	every time.Duration // negative: never
	named bool

	mu   sync.Mutex
	last map[string]time.Time // when, by what was said
}

// due returns what a transaction says that writes to topics.
func (h *hints) due(now time.Time, topics []string) (named []string) {
	if h.every < 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		if !h.named || !nameable(topic) {
			topic = ""
		}
		if slices.Contains(named, topic) || now.Sub(h.last[topic]) < h.every {
			continue
		}
		if len(h.last) >= 1000 {
			clear(h.last)
		}
		h.last[topic] = now
		named = append(named, topic)
	}
	if len(named) > mostHints {
		return []string{""}
	}
	return named
}

// nameable says whether topic is one that Kafka would take. Of others Postgres may refuse the notification, and abort the
// transaction, before it comes to the row.
func nameable(topic string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(topic) <= 249 && strings.Trim(topic, plain) == ""
}
