package mapping

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The header profiles.
const (
	CloudEvents = "cloudevents" // Troupe's own: ce_id, ce_type and so on, see package envelope
	EventRouter = "eventrouter" // Debezium's: the header id, and only those headers that the options add
)

// The formats of keys and payloads, which Debezium leaves to Kafka Connect's converters.
const (
	Text = "text" // like StringConverter, and for bytea like BinaryDataConverter
	JSON = "json" // like JsonConverter with schemas.enable=false: a string in quotes, null as "null"
)

// The values of Config.OnUpdate and Config.Missing.
const (
	Warn   = "warn"
	Error  = "error"
	Fatal  = "fatal"
	Ignore = "ignore"
)

// The values of Config.JSONNull and Config.JSONEmptyArray other than Ignore.
const (
	OptionalBytes  = "optional_bytes"
	OptionalString = "optional_string"
)

// Config maps the columns of a table. Its names in files and in FromOptions are Debezium's, where Debezium has the option; an
// empty field selects the default. In files a list of placements is one string, as in Debezium.
type Config struct {
	ID            string `yaml:"table.field.event.id" json:"table.field.event.id,omitempty"`                         // default id
	Key           string `yaml:"table.field.event.key" json:"table.field.event.key,omitempty"`                       // default aggregateid
	Type          string `yaml:"table.field.event.type" json:"table.field.event.type,omitempty"`                     // default type; read for CloudEvents only
	Timestamp     string `yaml:"table.field.event.timestamp" json:"table.field.event.timestamp,omitempty"`           // a timestamp or timestamptz; default none
	Payload       string `yaml:"table.field.event.payload" json:"table.field.event.payload,omitempty"`               // default payload
	SchemaVersion string `yaml:"table.field.event.schema.version" json:"table.field.event.schema.version,omitempty"` // an integer, ce_schemaversion for CloudEvents; default none

	// Additional is a list of column:placement or column:placement:alias, separated by commas; placement is header, envelope
	// or partition. With an envelope the payload becomes {"payload": …, "alias": …}.
	Additional string `yaml:"table.fields.additional.placement" json:"table.fields.additional.placement,omitempty"`
	// Missing selects whether a column of Additional may be missing: error (default) or ignore.
	Missing string `yaml:"table.field.additional.missing" json:"table.field.additional.missing,omitempty"`

	// OnUpdate is the relay's reaction to an UPDATE of the table: warn (default) or error, which log it and continue, or
	// fatal. A publication of inserts only, such as the relay creates, never contains one.
	OnUpdate string `yaml:"table.op.invalid.behavior" json:"table.op.invalid.behavior,omitempty"`

	// ExpandJSON makes a JSON document of a text payload that contains an object or an array: without spaces, and without
	// members that are null or an empty array unless JSONNull and JSONEmptyArray keep them.
	ExpandJSON     bool   `yaml:"table.expand.json.payload" json:"table.expand.json.payload,omitempty"`
	JSONNull       string `yaml:"table.json.payload.null.behavior" json:"table.json.payload.null.behavior,omitempty"`               // ignore (default) or optional_bytes
	JSONEmptyArray string `yaml:"table.json.payload.empty.array.behavior" json:"table.json.payload.empty.array.behavior,omitempty"` // ignore (default) or optional_string

	// The topic is the value of RouteBy's column, with the first match of RouteRegex replaced, if RouteRegex matches the
	// whole value. Defaults aggregatetype, (?<routedByValue>.*), outbox.event.${routedByValue}; in Java's syntax.
	RouteBy          string `yaml:"route.by.field" json:"route.by.field,omitempty"`
	RouteRegex       string `yaml:"route.topic.regex" json:"route.topic.regex,omitempty"`
	RouteReplacement string `yaml:"route.topic.replacement" json:"route.topic.replacement,omitempty"`
	// TombstoneOnEmpty sends null for a payload that is null, or text that contains only spaces.
	TombstoneOnEmpty bool `yaml:"route.tombstone.on.empty.payload" json:"route.tombstone.on.empty.payload,omitempty"`

	// SpanContext names a column of java.util.Properties with traceparent and tracestate; default tracingspancontext, which
	// may be missing.
	SpanContext string `yaml:"tracing.span.context.field" json:"tracing.span.context.field,omitempty"`

	// Options that Debezium does not have, or leaves to Kafka Connect.

	Headers       string `yaml:"headers" json:"headers,omitempty"`               // cloudevents (default) or eventrouter
	Source        string `yaml:"service" json:"service,omitempty"`               // ce_source; empty: the sender of the message sets it
	KeyFormat     string `yaml:"key.format" json:"key.format,omitempty"`         // text (default) or json
	PayloadFormat string `yaml:"payload.format" json:"payload.format,omitempty"` // text (default) or json
	ContentType   string `yaml:"content.type" json:"content.type,omitempty"`     // default application/json, for a bytea application/octet-stream

	Position string `yaml:"table.field.position" json:"table.field.position,omitempty"` // an integer that grows with the inserts: the order in which the table is read
	XID      string `yaml:"table.field.xid" json:"table.field.xid,omitempty"`           // an xid8 DEFAULT pg_current_xact_id(): shows which rows are published if the slot is lost
}

// defaults returns c with defaults in the empty fields that have one.
func (c Config) defaults() Config {
	fill(&c.ID, "id")
	fill(&c.Key, "aggregateid")
	fill(&c.Type, "type")
	fill(&c.Payload, "payload")
	fill(&c.Missing, Error)
	fill(&c.OnUpdate, Warn)
	fill(&c.JSONNull, Ignore)
	fill(&c.JSONEmptyArray, Ignore)
	fill(&c.RouteBy, "aggregatetype")
	fill(&c.RouteRegex, "(?<routedByValue>.*)")
	fill(&c.RouteReplacement, "outbox.event.${routedByValue}")
	fill(&c.SpanContext, "tracingspancontext")
	fill(&c.Headers, CloudEvents)
	fill(&c.KeyFormat, Text)
	fill(&c.PayloadFormat, Text)
	return c
}

// choices lists the options whose value is one of a few words.
func (c *Config) choices() []choice {
	return []choice{
		{"table.field.additional.missing", &c.Missing, []string{Error, Ignore}},
		{"table.op.invalid.behavior", &c.OnUpdate, []string{Warn, Error, Fatal}},
		{"table.json.payload.null.behavior", &c.JSONNull, []string{Ignore, OptionalBytes}},
		{"table.json.payload.empty.array.behavior", &c.JSONEmptyArray, []string{Ignore, OptionalString}},
		{"headers", &c.Headers, []string{CloudEvents, EventRouter}},
		{"key.format", &c.KeyFormat, []string{Text, JSON}},
		{"payload.format", &c.PayloadFormat, []string{Text, JSON}},
	}
}

type choice struct {
	option string
	value  *string
	words  []string
}

// check accepts the words in upper or lower case, as Debezium does.
func (c choice) check() error {
	for _, w := range c.words {
		if strings.EqualFold(strings.TrimSpace(*c.value), w) {
			*c.value = w
			return nil
		}
	}
	return fmt.Errorf("%s: %q: want %s", c.option, *c.value, strings.Join(c.words, " or "))
}

// former maps options that Debezium had under other names to their names.
var former = map[string]string{
	"debezium.op.invalid.behavior": "table.op.invalid.behavior",
	"table.field.payload":          "table.field.event.payload",
}

// onMissing is an option whose true and false mean the same as error and ignore of table.field.additional.missing.
const onMissing = "table.fields.additional.error.on.missing"

// optionNames returns the names of Config's fields.
func optionNames() (names []string) {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

// FromOptions reads Debezium's options, named as after "transforms.<name>.", and Config's own. An unknown option is an error,
// and so is an invalid value.
func FromOptions(options map[string]string) (Config, error) {
	var c Config
	fields := make(map[string]reflect.Value)
	v := reflect.ValueOf(&c).Elem()
	for i, name := range optionNames() {
		fields[name] = v.Field(i)
	}
	var failed []error
	set := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(options)) {
		value, now := options[name], name
		if known := former[name]; known != "" {
			now = known
		}
		if name == onMissing {
			now = "table.field.additional.missing"
			stop, err := strconv.ParseBool(strings.TrimSpace(value))
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %q: want true or false", name, value))
				continue
			}
			if value = Ignore; stop {
				value = Error
			}
		}
		field, known := fields[now]
		switch {
		case !known:
			failed = append(failed, fmt.Errorf("%s: no such option; known are %s", name,
				strings.Join(slices.Sorted(maps.Keys(fields)), ", ")))
		case set[now] != "":
			failed = append(failed, fmt.Errorf("%s and %s are the same option: leave one out", set[now], name))
		case field.Kind() == reflect.Bool:
			on, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(value)))
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %q: want true or false", name, value))
			}
			field.SetBool(on)
		case strings.TrimSpace(value) == "":
			failed = append(failed, fmt.Errorf("%s is empty: give it a value, or leave it out for the default", name))
		default:
			field.SetString(value)
		}
		set[now] = name
	}
	if len(failed) > 0 {
		return Config{}, fmt.Errorf("mapping: %w", errors.Join(failed...))
	}
	return c, nil
}

// Options returns the fields that are set, by their names, in the form that FromOptions reads.
func (c Config) Options() map[string]string {
	options := make(map[string]string)
	v := reflect.ValueOf(c)
	for i, name := range optionNames() {
		if !v.Field(i).IsZero() {
			options[name] = fmt.Sprint(v.Field(i).Interface())
		}
	}
	return options
}

func fill(s *string, with string) {
	if *s == "" {
		*s = with
	}
}

// An Option describes one field of Config, for schemas of files and for references.
type Option struct {
	Name    string
	Default string   // empty: none
	Words   []string // allowed values; empty: any text
	Bool    bool     // true or false
}

// Options returns all options, in the order of Config.
func Options() []Option {
	filled := Config{}.defaults()
	words := make(map[string][]string)
	for _, c := range filled.choices() {
		words[c.option] = c.words
	}
	v := reflect.ValueOf(filled)
	list := make([]Option, v.NumField())
	for i, name := range optionNames() {
		list[i] = Option{Name: name, Words: words[name], Bool: v.Field(i).Kind() == reflect.Bool}
		if list[i].Bool {
			list[i].Default = "false"
		} else {
			list[i].Default = v.Field(i).String()
		}
	}
	return list
}
