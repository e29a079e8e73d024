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

// maxHints is the largest number of topics that one commit names in notifications. A commit to more topics sends one notification that
// names none.
const maxHints = 8

// hints decides which commits notify, and which topics their notifications name. In each interval it allows one notification per topic, or
// one in all if notifications name no topics. The listeners find the rows of a commit that does not notify with their next poll.
//
// The interval begins when the entries are written, not at the commit. If the transaction then rolls back, no commit of that interval
// notifies.
type hints struct {
	every time.Duration // shortest time between two notifications of one topic; negative: never notify
	named bool          // notifications name topics

	mu   sync.Mutex
	last map[string]time.Time // begin of the last interval, by topic; "" for notifications without a topic
}

// due returns the topics to notify for a transaction that writes to topics, and starts their interval: the next call within h.every leaves
// them out. The topic "" stands for a notification without a topic. If more than maxHints topics are due, due returns only "".
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

// nameable reports whether the topic's name has at most 249 characters, and only the ones that Kafka allows. A longer name, or one with other
// characters, may make Postgres refuse the notification and abort the transaction. Then the row would not be written, and the relay could not
// park it.
func nameable(topic string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(topic) <= 249 && strings.Trim(topic, plain) == ""
}
