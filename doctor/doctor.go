package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// Config says what is examined: the database, Kafka and the registry, each where it is named.
type Config struct {
	// Database is how the service or its relay connects. Nil: no database is looked at.
	Database *pgx.ConnConfig
	// Parts are what runs with those rights. Default: Relay and Participant, which is a service whose relay shares
	// its role.
	Parts []Part
	// Role is whose rights are looked at, where who connects may become it (SET ROLE). Default: who connects.
	Role string

	// Brokers are bootstrap addresses, host:port. None: Kafka is not looked at.
	Brokers []string
	// Kafka are further options of the client, such as TLS and SASL.
	Kafka []kgo.Opt
	// Flow is the first part of the topics that are looked at: all that there are. Default: none.
	Flow string
	// Hops have topics that should be there.
	Hops []topics.Hop

	// Registry is the schema registry. Nil: none is looked at.
	Registry *schemas.Registry

	// Limit is how long each server has for its answers. Default 10 s.
	Limit time.Duration
	// Now is this machine's clock, for tests. Default time.Now.
	Now func() time.Time
}

// Validate finds what is missing or cannot be meant.
func (c Config) Validate() error {
	for _, p := range c.Parts {
		if !slices.Contains(Parts(), p) {
			return fmt.Errorf("doctor: part %q: want one of %s", p, join(Parts()))
		}
	}
	if c.Flow != "" {
		if _, err := topics.NewHop(c.Flow, "x"); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
	}
	if (c.Flow != "" || len(c.Hops) > 0) && len(c.Brokers) == 0 {
		return errors.New("doctor: a flow or a hop without brokers: name those too")
	}
	if c.Limit < 0 {
		return fmt.Errorf("doctor: limit %s is negative", c.Limit)
	}
	if c.Database == nil && len(c.Brokers) == 0 && c.Registry == nil {
		return errors.New("doctor: nothing to look at: name a database, brokers or a registry")
	}
	return nil
}

// Examine looks at everything that cfg names, one server after the other, and gives what it found. What cannot be looked at is
// a finding, too: an error is Validate's alone.
func Examine(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Limit = cmp.Or(cfg.Limit, 10*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Parts) == 0 {
		cfg.Parts = []Part{Relay, Participant}
	}
	e := &examination{Config: cfg, Report: new(Report)}
	for _, look := range []struct {
		at bool
		do func(context.Context)
	}{{cfg.Database != nil, e.database}, {len(cfg.Brokers) > 0, e.kafka}, {cfg.Registry != nil, e.registry}} {
		if look.at { // one that hangs leaves the others their time
			limited, cancel := context.WithTimeout(ctx, cfg.Limit)
			look.do(limited)
			cancel()
		}
	}
	return e.Report, nil
}

// examination is one run.
type examination struct {
	Config
	*Report
	waiting []string // topics of the rows that wait in the outbox
}

func (e *examination) has(p Part) bool { return slices.Contains(e.Parts, p) }

func (e *examination) registry(ctx context.Context) {
	// The subject is nobody's; that it is unknown is the answer of a registry that works.
	level, err := e.Registry.Level(ctx, "troupe.doctor")
	switch {
	case err != nil:
		e.Fail("registry", err.Error(), "check the address, and that the registry is up and lets this client in")
	case level == schemas.None:
		e.Warn("registry", e.Registry.String()+": level NONE: it takes any schema, also one that readers cannot read",
			fmt.Sprintf(`curl -X PUT %s/config -H 'Content-Type: application/json' -d '{"compatibility": "FULL_TRANSITIVE"}'`, e.Registry))
	default:
		e.Ok("registry", fmt.Sprintf("%s, level %s", e.Registry, level))
	}
}
