package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/topics"
)

// MaxRetention is as many days as the ring of partitions keeps.
const MaxRetention = 14 * 24 * time.Hour

// Config of a Watcher. Pool, Brokers, Flow and Declared must be set.
type Config struct {
	// Pool is of a migrated database, better not one of a service: a watcher writes each message of the flow.
	Pool *pgxpool.Pool
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Flow is the first part of the topics' names.
	Flow string
	// Declared are the flow's services. Each must pass its Check.
	Declared []reactions.Service
	// Answer is how long a reaction may take, or a join or an expectation to say that its time is over. Default 1 min.
	Answer time.Duration
	// Since is how far back a topic is read that was not read before. Default, and at most: Retention.
	Since time.Duration
	// Retention is how long messages and findings are kept, in whole days of UTC. Default 7 days, at most MaxRetention. Those
	// who watch in one database share its ring: the shortest counts.
	Retention time.Duration
	// Batch is how many messages are stored in one transaction at most. Default 5,000.
	Batch int
	// Found is told of findings as they come, by the goroutine of Run, after they were stored: after a crash in between it is
	// not told again. At most 100 of each look: those that it is not told of are in the table. May be nil.
	Found func(context.Context, Finding)
	Log   zerolog.Logger
	// Kafka options come after this package's own, so they win.
	Kafka []kgo.Opt
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Pool == nil:
		return c, errors.New("no Pool")
	case len(c.Brokers) == 0:
		return c, errors.New("no Brokers")
	case c.Answer < 0 || c.Since < 0 || c.Retention < 0 || c.Batch < 0:
		return c, fmt.Errorf("answer %s, since %s, retention %s, batch %d: want none below zero", c.Answer, c.Since, c.Retention, c.Batch)
	case c.Retention > MaxRetention:
		return c, fmt.Errorf("retention %s: want at most %s", c.Retention, MaxRetention)
	case len(c.Declared) == 0:
		return c, errors.New("nothing Declared: want the reactions of the flow's services")
	}
	if _, err := topics.NewHop(c.Flow, "hop"); err != nil {
		return c, err
	}
	ours := false
	for _, s := range c.Declared {
		if err := s.Check(); err != nil {
			return c, fmt.Errorf("%s: %w", s.Hop, err)
		}
		hop, _ := topics.ParseHop(s.Hop)
		ours = ours || hop.Flow() == c.Flow
	}
	if !ours {
		return c, fmt.Errorf("no service of flow %s is declared: %s is of another", c.Flow, c.Declared[0].Hop)
	}
	fill(&c.Answer, time.Minute)
	fill(&c.Retention, 7*24*time.Hour)
	fill(&c.Since, c.Retention)
	fill(&c.Batch, 5000)
	c.Since = min(c.Since, c.Retention)
	return c, nil
}

func fill[T comparable](field *T, with T) {
	var zero T
	if *field == zero {
		*field = with
	}
}

// declaration is what the rules come from, as it is stored.
func (c Config) declaration() ([]byte, error) { return json.Marshal(c.Declared) }
