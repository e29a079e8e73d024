// Package demo contains the common parts of the four services of the order flow: their configuration, and a run loop that waits
// for its servers, makes its tables, and runs a participant and an HTTP server.
//
// Each service is a package below this one, and a main of a few lines in cmd. They share no data: each has its own database, and
// a relay in another process.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/traces"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// A Service is one of the four services: it runs until ctx ends and then returns nil, within 15 s.
type Service func(ctx context.Context, cfg Config) error

// Config configures a service. DatabaseURL, Brokers and Registry are required.
type Config struct {
	DatabaseURL string   // the service's own database
	Brokers     []string // host:port
	Registry    string   // the schema registry's URL

	Style      Style  // orchestrated or choreographed; default Orchestration
	Flow       string // first part of the topics' names, "order" by default; another run of the demo needs another flow
	Listen     string // host:port for HTTP; default 127.0.0.1, 8081 for order, 8082 payment, 8083 inventory, 8084 shipping
	Fail       Fail   // share of orders to refuse on purpose
	Seed       int64  // seed of the refusals
	Partitions int32  // of the topics that the service creates; default 4
	AlertURL   string // webhook that is notified of dead letters and parked sagas; "": none
	Traces     string // where spans are sent, by OTLP over HTTP: http://host:4318; "": none are made

	Kafka []kgo.Opt       // further options of the Kafka clients
	Dial  pgconn.DialFunc // of the database's pool; nil: the default
	Log   zerolog.Logger
}

const defaultFlow = "order"

var ports = map[string]string{"order": "8081", "payment": "8082", "inventory": "8083", "shipping": "8084"}

func (c Config) withDefaults(service string) Config {
	c.Style = cmp.Or(c.Style, Orchestration)
	c.Flow = cmp.Or(c.Flow, defaultFlow)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:"+ports[service])
	c.Partitions = cmp.Or(c.Partitions, 4)
	return c
}

// Validate returns an error for each missing or invalid setting, with the setting's name and the remedy.
func (c Config) Validate() error {
	var errs []error
	check := func(setting string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", setting, err))
		}
	}
	required := func(setting, value, example string, err error) {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set: want %s", setting, example))
			return
		}
		check(setting, err)
	}
	brokers := strings.Join(c.Brokers, ",")
	_, err := address.ParseConn(c.DatabaseURL)
	required("DATABASE_URL", c.DatabaseURL, "postgres://user@host/database", err)
	_, err = address.ParseBrokers(brokers)
	required("KAFKA_BROKERS", brokers, "host:port,host:port", err)
	_, err = schemas.NewRegistry(c.Registry)
	required("SCHEMA_REGISTRY_URL", c.Registry, "http://host:port", err)
	check("DEMO_LISTEN", address.CheckListen(c.Listen))
	_, err = topics.NewHop(c.Flow, "order")
	check("DEMO_FLOW", err)
	_, err = ParseStyle(string(c.Style))
	check("DEMO_STYLE", err)
	if c.Partitions < 1 {
		check("DEMO_PARTITIONS", fmt.Errorf("%d: want 1 or more", c.Partitions))
	}
	check("ALERT_URL", c.alert().Validate())
	if err := address.CheckURL(c.Traces); c.Traces != "" && err != nil {
		check("OTEL_EXPORTER_OTLP_ENDPOINT", fmt.Errorf("%w: want http://host:port, of a collector that takes OTLP over HTTP", err))
	}
	if c.Traces != "" {
		errs = append(errs, traces.CheckEnvironment())
	}
	return errors.Join(errs...)
}

// Hop returns the hop of that name in the configured flow. It panics if Validate refuses the flow.
func (c Config) Hop(name string) topics.Hop { return topics.MustHop(cmp.Or(c.Flow, defaultFlow), name) }

// Refuses reports whether the hop of that name refuses the order on purpose.
func (c Config) Refuses(orderID, hop string) bool { return c.Fail.Refuses(c.Seed, orderID, hop) }

// FromEnv reads the configuration from the environment: DATABASE_URL, KAFKA_BROKERS, SCHEMA_REGISTRY_URL, DEMO_STYLE, DEMO_FLOW,
// DEMO_LISTEN, DEMO_FAIL, DEMO_SEED, DEMO_PARTITIONS, ALERT_URL and OTEL_EXPORTER_OTLP_ENDPOINT. It does not check for missing
// settings: Validate does.
func FromEnv() (Config, error) {
	var c Config
	for _, s := range c.settings() {
		if text := os.Getenv(s.env); text != "" {
			if err := s.set(text); err != nil {
				return c, fmt.Errorf("%s: %w", s.env, err)
			}
		}
	}
	return c, nil
}
