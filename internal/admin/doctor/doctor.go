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

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/topics"
)

// Config configures an examination of the database, Kafka and the registry, each if it is set.
type Config struct {
	// Database is the connection of the service or its relay. Nil: no database is examined.
	Database *pgx.ConnConfig
	// Login is called with Database before the examination, like pgxpool.Config.BeforeConnect. It may set a password. Default:
	// none.
	Login func(context.Context, *pgx.ConnConfig) error
	// Parts are the parts that use the role. Default: Relay and Participant, for a service whose relay shares its role.
	Parts []Part
	// Role is the role whose rights are examined, if the connecting role may SET ROLE to it. Default: the connecting role.
	Role string

	// Brokers are bootstrap addresses, host:port. None: Kafka is not examined.
	Brokers []string
	// Kafka lists further options of the client, such as TLS and SASL.
	Kafka []kgo.Opt
	// Flow is the first part of topic names: all existing topics of the flow are examined. Default: none.
	Flow string
	// Hops are hops whose topics should exist.
	Hops []topics.Hop
	// Topics are other topics that rows go to, for a relay of a mapped table: each must exist.
	Topics []string

	// Registry is the schema registry. Nil: none is examined.
	Registry *registry.Client

	// Limit limits the time for each server. Default: 10 s.
	Limit time.Duration
	// Now returns the time of this machine, for tests. Default: time.Now.
	Now func() time.Time
}

// Validate returns an error if a field is missing or invalid.
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

// Examine examines everything that cfg names, one server after the other, and returns the findings. A server that cannot be
// examined is a finding, too: only Validate causes an error.
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
	}{{cfg.Database != nil && e.login(ctx), e.database}, {len(cfg.Brokers) > 0, e.kafka}, {cfg.Registry != nil, e.registry}} {
		if look.at { // each has its own time, so one that hangs does not take the time of the others
			limited, cancel := context.WithTimeout(ctx, cfg.Limit)
			look.do(limited)
			cancel()
		}
	}
	return e.Report, nil
}

// An examination is one run.
type examination struct {
	Config
	*Report
	waiting []string // topics of the rows that wait in the outbox
}

func (e *examination) has(p Part) bool { return slices.Contains(e.Parts, p) }

func (e *examination) registry(ctx context.Context) {
	// No schema has this subject; a working registry answers that it is unknown.
	level, err := e.Registry.Level(ctx, "troupe.doctor")
	switch {
	case err != nil:
		e.Fail("registry", err.Error(), "check the address, and that the registry is up and lets this client in")
	case level == avsc.None:
		e.Warn("registry", e.Registry.String()+": level NONE: it takes any schema, also one that readers cannot read",
			fmt.Sprintf(`curl -X PUT %s/config -H 'Content-Type: application/json' -d '{"compatibility": "FULL_TRANSITIVE"}'`, e.Registry))
	default:
		e.Ok("registry", fmt.Sprintf("%s, level %s", e.Registry, level))
	}
}
