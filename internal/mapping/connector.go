package mapping

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxConnector is the largest size of a connector's JSON, in bytes.
const maxConnector = 1 << 20

// A Connector describes the relay that replaces a Debezium Postgres connector. It contains no password.
type Connector struct {
	Name     string // name of the connector; empty in the bare form
	Database Database
	Tables   []string // schema.table, as table.include.list names them

	// Slot and Publication are the connector's own, which a relay may take over once the connector is stopped. Both are empty
	// if it cannot, since the slot is of a plugin other than pgoutput.
	Slot, Publication string
	ExactlyOnce       bool // exactly.once.support is required

	// Registry and Strategy are set if a schema registry encodes the payload as Avro: the registry's address without
	// credentials, and the strategy's class.
	Registry, Strategy string

	Mapping Config
	Notes   []Note // in the order of the options' names
}

// Database says where the connector reads.
type Database struct {
	Host, Port, Name, User string
	SSLMode                string
	Files                  map[string]string // sslrootcert, sslcert, sslkey: paths on the connector's host
}

// URL returns the database's address without password and files, or "" if the connector does not contain enough of it.
func (d Database) URL() string {
	if d.Host == "" || d.Name == "" {
		return ""
	}
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort(d.Host, cmp.Or(d.Port, "5432")), Path: "/" + d.Name}
	if d.User != "" {
		u.User = url.User(d.User)
	}
	if d.SSLMode != "" {
		u.RawQuery = url.Values{"sslmode": {d.SSLMode}}.Encode()
	}
	return u.String()
}

// Weight is the importance of a Note for the move.
type Weight int

// The weights. Moot: the relay needs no equivalent. Differs: the effect will differ or be missing, and you must check it.
// Stops: the relay cannot do what the connector does.
const (
	Moot Weight = iota
	Differs
	Stops
)

func (w Weight) String() string { return [...]string{"moot", "differs", "stops"}[w] }

// A Note is a sentence about an option that has no equivalent, or another one than its name suggests. It never contains the
// value of an option that may be a secret.
type Note struct {
	Option string
	Weight Weight
	Text   string
}

// FromConnector reads the JSON of a Debezium Postgres connector with an EventRouter: {"name": …, "config": {…}}, as Kafka
// Connect's REST API accepts it, or only the map under config. A setting that the relay cannot replace is not an error, but a
// Note with weight Stops.
func FromConnector(text []byte) (Connector, error) {
	if len(text) > maxConnector {
		return Connector{}, fmt.Errorf("mapping: connector of %d bytes: the limit is %d", len(text), maxConnector)
	}
	name, options, err := parseConnector(text)
	if err != nil {
		return Connector{}, fmt.Errorf("mapping: connector: %w", err)
	}
	r := reading{options: options, done: make(map[string]bool), c: &Connector{Name: name}}
	r.c.Mapping.Headers = EventRouter
	r.class()
	r.database()
	r.capture()
	r.tables()
	r.converters()
	r.transforms()
	r.rest()
	slices.SortStableFunc(r.c.Notes, func(a, b Note) int { return strings.Compare(a.Option, b.Option) })
	return *r.c, nil
}

func parseConnector(text []byte) (name string, options map[string]string, err error) {
	raw, err := object(text)
	if err != nil {
		return "", nil, err
	}
	if config, wrapped := raw["config"]; wrapped {
		_ = json.Unmarshal(raw["name"], &name) // a missing name does not matter
		if raw, err = object(config); err != nil {
			return "", nil, fmt.Errorf("config: %w", err)
		}
	} else {
		_ = json.Unmarshal(raw["name"], &name)
	}
	options = make(map[string]string, len(raw))
	for option, value := range raw {
		switch {
		case bytes.Equal(value, []byte("null")):
		case value[0] == '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return "", nil, fmt.Errorf("option %q: %w", option, err)
			}
			options[option] = s
		case value[0] == '{' || value[0] == '[':
			return "", nil, fmt.Errorf("option %q is an object or a list: want text, a number, true or false", option)
		default:
			options[option] = string(value)
		}
	}
	return name, options, nil
}

func object(text []byte) (m map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		if mistake := (*json.SyntaxError)(nil); errors.As(err, &mistake) {
			return nil, fmt.Errorf("not JSON at byte %d: %w", mistake.Offset, err)
		}
		return nil, errors.New(`no JSON object: want {"name": …, "config": {…}}, or the map under config`)
	}
	if m == nil {
		return nil, errors.New(`null: want {"name": …, "config": {…}}, or the map under config`)
	}
	return m, nil
}

// A reading goes through a connector's options and marks the handled ones.
type reading struct {
	options map[string]string
	done    map[string]bool
	c       *Connector
}

// take returns the first non-empty value of the options, "" without one, and marks them as handled.
func (r *reading) take(names ...string) (value string) {
	for _, name := range names {
		if v, set := r.options[name]; set && !r.done[name] {
			r.done[name] = true
			if value == "" {
				value = strings.TrimSpace(v)
			}
			if provided(v) {
				r.note(name, Differs, "Kafka Connect fills in its value by a config provider: put the value itself there")
			}
		}
	}
	return value
}

// provided reports whether a config provider supplies the value: ${file:/path:key}.
func provided(value string) bool {
	_, rest, found := strings.Cut(value, "${")
	inner, _, closed := strings.Cut(rest, "}")
	return found && closed && strings.Contains(inner, ":")
}

func (r *reading) note(option string, w Weight, text string) {
	r.c.Notes = append(r.c.Notes, Note{option, w, text})
}

func (r *reading) class() {
	class := r.take("connector.class")
	r.take("name")
	if class != "io.debezium.connector.postgresql.PostgresConnector" {
		r.note("connector.class", Stops, "it is not Debezium's connector for Postgres: only that can be replaced")
	}
}

func (r *reading) database() {
	d := &r.c.Database
	d.Host, d.Port = r.take("database.hostname"), r.take("database.port")
	d.Name, d.User = r.take("database.dbname"), r.take("database.user")
	d.SSLMode = r.take("database.sslmode")
	for _, name := range []string{"sslrootcert", "sslcert", "sslkey"} {
		if path := r.take("database." + name); path != "" {
			if d.Files == nil {
				d.Files = make(map[string]string)
			}
			d.Files[name] = path
		}
	}
	if d.SSLMode == "" {
		d.SSLMode = "prefer" // Debezium's default
	}
}

const (
	defaultSlot        = "debezium"
	defaultPublication = "dbz_publication"
)

func (r *reading) capture() {
	c := r.c
	c.Slot, c.Publication = r.take("slot.name"), r.take("publication.name")
	fill(&c.Slot, defaultSlot)
	fill(&c.Publication, defaultPublication)
	switch plugin := r.take("plugin.name"); plugin {
	case "pgoutput":
	default:
		c.Slot, c.Publication = "", ""
		r.note("plugin.name", Differs, "the slot is not of pgoutput (Debezium's default is decoderbufs): the relay needs a slot and "+
			"a publication of its own, made before the connector stops; what both send carries the same ids")
	}
	if r.take("slot.drop.on.stop") == "true" {
		r.note("slot.drop.on.stop", Differs, "the slot is dropped when the connector stops, and unsent rows are lost with it: set it to false "+
			"before the move")
	}
	if text := r.take("heartbeat.interval.ms"); text != "" {
		if _, err := strconv.ParseUint(text, 10, 31); err != nil {
			r.note("heartbeat.interval.ms", Differs, "its value is no number of milliseconds")
		}
		r.note("heartbeat.interval.ms", Moot, "the relay's own comes every 15 s while the table is quiet")
	}
	switch strings.ToLower(r.take("exactly.once.support")) {
	case "required":
		c.ExactlyOnce = true
	case "requested":
		r.note("exactly.once.support", Differs, "requested has no equivalent: delivery is at-least-once unless you ask for exactly-once")
	}
}

func (r *reading) tables() {
	list := r.take("table.include.list", "table.whitelist")
	if list == "" {
		r.note("table.include.list", Stops, "it is not set: the relay reads the outbox table only, so name it")
		return
	}
	for item := range strings.SplitSeq(list, ",") {
		table := strings.ReplaceAll(strings.TrimSpace(item), `\.`, ".")
		if strings.ContainsAny(table, `\*+?[](){}|^$`) || strings.Count(table, ".") != 1 {
			r.note("table.include.list", Differs, fmt.Sprintf("%q is an expression: name each table as schema.table", table))
			continue
		}
		r.c.Tables = append(r.c.Tables, table)
	}
	if len(r.c.Tables) > 1 {
		text := "each table has a slot of its own in the relay; make them while the connector runs, each behind its publication"
		if r.c.Slot != "" {
			text = "each table has a slot of its own in the relay; once the connector is stopped, and before the relay starts, copy this one:"
			for i := 1; i < len(r.c.Tables); i++ {
				text += fmt.Sprintf(" SELECT pg_copy_logical_replication_slot(%s, %s);", literal(r.c.Slot), literal(r.c.SlotOf(i)))
			}
		}
		r.note("table.include.list", Differs, text)
	}
}

// SlotOf returns the name for the slot of the table with an index: Slot for the first table, and the name of a copy of it for
// each other table. It is empty if Slot is.
func (c Connector) SlotOf(table int) string {
	if table == 0 || c.Slot == "" {
		return c.Slot
	}
	end := "_" + strconv.Itoa(table+1)
	return c.Slot[:min(len(c.Slot), maxSlotName-len(end))] + end
}

const maxSlotName = 63

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (r *reading) converters() {
	c := r.c
	c.Mapping.KeyFormat = r.converter("key.converter", false)
	c.Mapping.PayloadFormat = r.converter("value.converter", true)
	class := shortClass(r.take("header.converter"))
	if class != "" && class != "SimpleHeaderConverter" && class != "StringConverter" {
		r.note("header.converter", Differs, "headers are plain text, as SimpleHeaderConverter writes them")
	}
}

func shortClass(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

// converter returns the format that a converter's class writes.
func (r *reading) converter(option string, isValue bool) string {
	class := shortClass(r.take(option))
	schemas := strings.ToLower(r.take(option + ".schemas.enable"))
	what := "keys"
	if isValue {
		what = "payloads"
	}
	switch class {
	case "":
		r.note(option, Differs, "the worker's setting counts, which is not in this file: taken as StringConverter; if it is JsonConverter, set the format to json")
	case "StringConverter", "ByteArrayConverter", "BinaryDataConverter", "ByteBufferConverter":
	case "JsonConverter":
		if schemas != "false" {
			r.note(option+".schemas.enable", Differs, what+" contain their schema; the relay writes them without, as with false")
		}
		return JSON
	case "AvroConverter":
		if !isValue {
			r.note(option, Differs, "keys are not encoded by a registry: they become plain text, and change their partition")
			return ""
		}
		r.avro(option)
	default:
		r.note(option, Differs, "this converter is not known: "+what+" are written as StringConverter does, bytea as it is")
	}
	r.delegate(option)
	return ""
}

// delegate handles options of a BinaryDataConverter for messages other than outbox rows: a relay sends no such messages.
func (r *reading) delegate(option string) {
	for name := range r.options {
		if strings.HasPrefix(name, option+".delegate.") {
			r.take(name)
			r.note(name, Moot, "it is for heartbeats and transactions, which the relay does not send to Kafka")
		}
	}
}

const topicNameStrategy = "io.confluent.kafka.serializers.subject.TopicNameStrategy"

func (r *reading) avro(option string) {
	first, _, _ := strings.Cut(r.take(option+".schema.registry.url"), ",")
	if address, err := url.Parse(first); err == nil && address.Host != "" {
		r.c.Registry = (&url.URL{Scheme: address.Scheme, Host: address.Host, Path: address.Path}).String()
	} else {
		r.note(option+".schema.registry.url", Differs, "no address could be read of it: give the relay the registry's")
	}
	r.c.Strategy = r.take(option + ".value.subject.name.strategy")
	fill(&r.c.Strategy, topicNameStrategy)
	if r.c.Strategy != topicNameStrategy {
		r.note(option+".value.subject.name.strategy", Stops, "the relay names a subject by the event's type, which EventRouter's headers "+
			"leave out, and not by a record in the payload: register the schema under the topic's subject, and leave this option out")
	}
	r.note(option, Differs, "JSON is encoded with the schema that the registry has under the topic's subject, and none is derived "+
		"from the payload or registered: register it first")
}
