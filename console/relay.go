package console

import (
	"context"
	"sync"

	"github.com/troupe-go/troupe/outbox"
)

// relayFacts are the outboxes.
type relayFacts struct {
	Databases []outboxOf `json:"databases"`
}

type outboxOf struct {
	Database string        `json:"database"`
	Error    string        `json:"error,omitempty"`
	Outbox   *outbox.Stats `json:"outbox"`
}

func readRelay(ctx context.Context, a *ask) (any, error) {
	f := relayFacts{make([]outboxOf, len(a.sources))}
	var all sync.WaitGroup
	for i, s := range a.sources {
		all.Go(func() {
			one := outboxOf{Database: s.Name}
			stats, err := outbox.ReadStats(ctx, s.Pool)
			if one.Outbox = &stats; err != nil {
				one.Outbox, one.Error = nil, err.Error()
			}
			f.Databases[i] = one
		})
	}
	all.Wait()
	return f, nil
}
