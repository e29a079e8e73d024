package sidecar

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
)

// A setting is named alike as flag, in the file and, in capitals, in the environment.
type setting struct {
	name  string
	value string // the default
	usage string // with the value's kind in back-quotes
	env   string // where it is not OUTBOX_RELAY_…
}

func (s setting) variable() string {
	if s.env != "" {
		return s.env
	}
	return "OUTBOX_RELAY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

var (
	databaseURL = setting{name: "database-url", env: "DATABASE_URL",
		usage: "the service's database, `postgres://…`; better in the environment, since others can see a command line"}
	brokers  = setting{name: "brokers", env: "KAFKA_BROKERS", usage: "`host:port,…` of Kafka"}
	service  = setting{name: "service", usage: "`name` for ce_source of rows that name none; default: the database's name"}
	source   = setting{name: "source", value: "auto", usage: "`auto|poll`: how rows are found"}
	delivery = setting{name: "delivery", value: "at-least-once", usage: "`at-least-once`: repeats carry the same ce_id"}
	admin    = setting{name: "admin", value: "127.0.0.1:8089", usage: "`host:port` of /livez, /readyz, /metrics and /status"}
	batch    = setting{name: "batch", value: "1000", usage: "`rows` claimed at once, up to 10000"}
	interval = setting{name: "interval", value: "1s", usage: "longest `time` between two looks at an idle outbox"}
	lease    = setting{name: "lease", value: "5s", usage: "`time` after which a standby replaces a relay that died"}
	drain    = setting{name: "drain", value: "10s", usage: "longest `time` to wait for acknowledgements when stopped"}
	alertURL = setting{name: "alert-url", env: "ALERT_URL",
		usage: "`URL` of a chat's webhook, which is told of parked rows; a secret: better in the environment"}
	logLevel = setting{name: "log-level", value: "info", usage: "`debug|info|warn|error`"}
	output   = setting{name: "output", value: "text", usage: "`text|json`"}
)

// everything is what the file may hold, whichever command reads it.
var everything = []setting{
	databaseURL, brokers, service, source, delivery, admin, batch, interval, lease, drain, alertURL, logLevel, output,
}

// declare gives a command the flags of its settings.
func declare(cmd *cobra.Command, settings ...setting) {
	flags := cmd.Flags()
	flags.SortFlags = false
	for _, s := range settings {
		flags.String(s.name, s.value, s.usage+" ["+s.variable()+"]")
	}
	flags.String("config", "", "`file.yaml` with any of these settings [OUTBOX_RELAY_CONFIG]")
}

// values are settings with where each came from, for errors that name the place to put right.
type values struct {
	text map[string]string
	from map[string]string
}

// read puts file, environment and flags over one another. Its errors are of usage.
func (p Program) read(cmd *cobra.Command, settings ...setting) (values, error) {
	v := values{text: make(map[string]string), from: make(map[string]string)}
	for _, s := range settings {
		v.text[s.name], v.from[s.name] = s.value, "default"
	}
	environ := make(map[string]string)
	for _, line := range p.Environ {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" {
			environ[name] = value
		}
	}
	path := environ["OUTBOX_RELAY_CONFIG"]
	if cmd.Flags().Changed("config") {
		path, _ = cmd.Flags().GetString("config")
	}
	all := koanf.New("/") // no setting has a slash in its name: the file is flat
	if path != "" {
		if err := all.Load(file.Provider(path), yaml.Parser()); err != nil {
			return v, usagef("config %s: %w", path, err)
		}
		if err := refuseUnknown(all, path); err != nil {
			return v, err
		}
	}
	// Variables that begin like ours but are none (Kubernetes makes some for a service of that name) are passed over.
	for _, s := range settings {
		if value := all.Get(s.name); value != nil {
			v.text[s.name], v.from[s.name] = textOf(value), path
		}
		if value, set := environ[s.variable()]; set {
			v.text[s.name], v.from[s.name] = value, s.variable()
		}
		if flag := cmd.Flags().Lookup(s.name); flag.Changed {
			v.text[s.name], v.from[s.name] = flag.Value.String(), "--"+s.name
		}
	}
	return v, nil
}

func refuseUnknown(all *koanf.Koanf, path string) error {
	known := make(map[string]bool)
	for _, s := range everything {
		known[s.name] = true
	}
	for _, key := range slices.Sorted(maps.Keys(all.Raw())) {
		if !known[key] {
			return usagef("config %s: unknown key %q; known are %s", path, key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}

// textOf is a value of the file as a flag would have it: a list is joined by commas.
func textOf(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	parts := make([]string, len(list))
	for i, part := range list {
		parts[i] = fmt.Sprint(part)
	}
	return strings.Join(parts, ",")
}
