package outbox

import (
	"slices"
	"sync"
	"time"
)

const notify = "SELECT pg_notify('" + Channel + "', topic) FROM unnest($1::text[]) AS topic"

const (
	mostHints = 8    // topics that one commit names; of more it says that there is something
	longHint  = 1000 // bytes: Postgres refuses a notification of 8000, and would abort the transaction
)

// hints says which commits notify, and of what: at most one in some time, which names what others wrote before it too. One
// that falls out costs its readers at most their next look.
type hints struct {
	every time.Duration // negative: never

	mu     sync.Mutex
	last   time.Time
	topics []string // written to and not named yet
}

// due adds topics, and returns those that are to be named now.
func (h *hints) due(now time.Time, topics []string) (named []string) {
	if h.every < 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		if len(topic) > longHint {
			topic = ""
		}
		if len(h.topics) <= mostHints && !slices.Contains(h.topics, topic) {
			h.topics = append(h.topics, topic)
		}
	}
	if len(h.topics) == 0 || now.Sub(h.last) < h.every {
		return nil
	}
	named, h.topics, h.last = h.topics, nil, now
	if len(named) > mostHints {
		return []string{""}
	}
	return named
}
