package demo

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// A setting is one field of Config in the form in which users write it.
type setting struct {
	env   string
	usage string
	set   func(text string) error
}

// flag returns the setting's name on the command line: --database-url, --flow.
func (s setting) flag() string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.env, "DEMO_"), "_", "-"))
}

func (c *Config) settings() []setting {
	return []setting{
		{"DATABASE_URL", "the service's own `database`, postgres://user@host/name", func(text string) error {
			c.DatabaseURL = text
			return nil
		}},
		{"KAFKA_BROKERS", "`addresses` of the brokers, host:port,host:port", func(text string) error {
			c.Brokers = list(text)
			return nil
		}},
		{"SCHEMA_REGISTRY_URL", "`address` of the schema registry, http://host:port", func(text string) error {
			c.Registry = text
			return nil
		}},
		{"DEMO_STYLE", "who decides what comes next, `orchestration|choreography` (default orchestration)", func(text string) (err error) {
			c.Style, err = ParseStyle(text)
			return err
		}},
		{"DEMO_FLOW", "`name` of the flow, the first part of its topics (default order)", func(text string) error {
			c.Flow = text
			return nil
		}},
		{"DEMO_LISTEN", "`address` for HTTP, host:port (default 127.0.0.1 and a port per service)", func(text string) error {
			c.Listen = text
			return nil
		}},
		{"DEMO_FAIL", "`shares` to refuse on purpose, payment=2%,inventory=3%,shipping=5%", func(text string) (err error) {
			c.Fail, err = ParseFail(text)
			return err
		}},
		{"DEMO_SEED", "`number` that decides which orders are refused (default 0)", func(text string) (err error) {
			c.Seed, err = strconv.ParseInt(text, 10, 64)
			return plain(text, err)
		}},
		{"DEMO_PARTITIONS", "`number` of partitions of the topics that are made (default 4)", func(text string) error {
			n, err := strconv.ParseInt(text, 10, 32)
			c.Partitions = int32(n)
			return plain(text, err)
		}},
		{"ALERT_URL", "`address` of a chat's webhook, which is told of dead letters and parked sagas; a secret (default none)", func(text string) error {
			c.AlertURL = text
			return nil
		}},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "`address` of an OpenTelemetry collector, which gets spans, http://host:4318 (default none)", func(text string) error {
			c.Traces = strings.TrimSuffix(text, "/")
			return nil
		}},
	}
}

// flags returns the settings as command-line flags; they override the environment, which was read into c before.
func (c *Config) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	for _, s := range c.settings() {
		fs.Func(s.flag(), s.usage+"; "+s.env, s.set)
	}
	return fs
}

// plain returns the error for text that is no whole number in range.
func plain(text string, err error) error {
	if err != nil {
		return fmt.Errorf("%q: want a whole number", text)
	}
	return nil
}
