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

// flag returns the setting's name on the command line, which is the same in all programs: --database-url, --brokers, --flow.
func (s setting) flag() string {
	switch s.env {
	case "KAFKA_BROKERS":
		return "brokers"
	case "SCHEMA_REGISTRY_URL":
		return "registry"
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.env, "DEMO_"), "_", "-"))
}

func (c *Config) settings() []setting {
	return []setting{
		{"DATABASE_URL", "the service's own `database`, postgres://user@host/name", text(&c.DatabaseURL)},
		{"KAFKA_BROKERS", "`addresses` of the brokers, host:port,host:port", parsed(&c.Brokers, func(text string) ([]string, error) {
			return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), nil
		})},
		{"SCHEMA_REGISTRY_URL", "`address` of the schema registry, http://host:port", text(&c.Registry)},
		{"DEMO_STYLE", "how the services work together, `orchestration|choreography` (default orchestration)", parsed(&c.Style, ParseStyle)},
		{"DEMO_FLOW", "`name` of the flow, the first part of its topics (default order)", text(&c.Flow)},
		{"DEMO_LISTEN", "`address` for HTTP, host:port (default 127.0.0.1 and a port per service)", text(&c.Listen)},
		{"DEMO_FAIL", "`shares` to refuse on purpose, payment=2%,inventory=3%,shipping=5%", parsed(&c.Fail, ParseFail)},
		{"DEMO_SEED", "`number` from which the refused orders are derived (default 0)", number(&c.Seed, 64)},
		{"DEMO_PARTITIONS", "`number` of partitions of the topics that are made (default 4)", number(&c.Partitions, 32)},
		{"ALERT_URL", "`address` of a chat's webhook for alerts on dead letters and parked sagas; a secret (default none)", text(&c.AlertURL)},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "`address` of an OpenTelemetry collector, which gets spans, http://host:4318 (default none)",
			parsed(&c.Traces, func(text string) (string, error) { return strings.TrimSuffix(text, "/"), nil })},
	}
}

func text(field *string) func(string) error {
	return parsed(field, func(text string) (string, error) { return text, nil })
}

func number[T int32 | int64](field *T, bits int) func(string) error {
	return parsed(field, func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return 0, fmt.Errorf("%q: want a whole number", text)
		}
		return T(n), nil
	})
}

func parsed[T any](field *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*field, err = parse(text)
		return err
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
