package outbox

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/outboxrow"
)

// notify sends one notification for each topic of an array.
const notify = "SELECT pg_notify('" + outboxrow.Channel + "', topic) FROM unnest($1::text[]) AS topic"

// maxHints limits the topics that one commit names. A commit to more topics sends one notification that names none.
const maxHints = 8

// hints decides which commits notify, and with which topics. In each interval it lets through one notification per topic, or one in all if
// notifications name no topics. A commit that does not notify delays its readers until their next poll at most.
type hints struct {
	every time.Duration // shortest time between two notifications of one topic; negative: never notify
	named bool          // notifications name topics

	mu   sync.Mutex
	last map[string]time.Time // time of the last notification, by topic; "" for any topic
}

// due returns the notifications that are due for a transaction that writes to topics. Each is a topic, or "" for a notification that names
// no topic.
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
	if len(named) > maxHints {
		return []string{""}
	}
	return named
}

// nameable reports whether Kafka accepts the topic's name. With another name Postgres may refuse the notification and abort the
// transaction, and the relay could not park the row.
func nameable(topic string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(topic) <= 249 && strings.Trim(topic, plain) == ""
}
