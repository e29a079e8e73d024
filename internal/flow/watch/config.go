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

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/topics"
)

// MaxRetention is the number of days that the ring of partitions can hold.
const MaxRetention = 14 * 24 * time.Hour

// Config configures a Watcher. Pool, Brokers, Flow and Declared are required.
type Config struct {
	// Pool connects to a migrated database. Use one of its own rather than a service's: a watcher stores each message of the
	// flow.
	Pool *pgxpool.Pool
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Flow is the first part of the topics' names.
	Flow string
	// Declared holds the declarations of the flow's services. Each must pass its Check.
	Declared []flow.Declaration
	// Answer limits how long a reaction may take, and how long after its time-out a join or an expectation may take to report it.
	// Default: 1 min.
	Answer time.Duration
	// Since sets how far back a topic is read that has not been read before. Default and maximum: Retention.
	Since time.Duration
	// Retention sets how long messages and findings are kept, in whole days of UTC. Default: 7 days; maximum: MaxRetention. The
	// watchers in one database share its ring, so the shortest retention applies.
	Retention time.Duration
	// Batch limits how many messages are stored in one transaction. Default: 5,000.
	Batch int
	// Found is called with each finding, by the goroutine of Run, after the finding was stored. After a crash in between it is
	// not called again. Of one transaction it gets at most 100 missing, stuck or late findings; all findings are in the tables.
	// May be nil.
	Found func(context.Context, Finding)
	Log   zerolog.Logger
	// Kafka options are applied after this package's own, so they override them.
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

// declaration returns the declarations, from which the rules are made, as they are stored.
func (c Config) declaration() ([]byte, error) { return json.Marshal(c.Declared) }
