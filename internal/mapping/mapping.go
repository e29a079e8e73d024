package mapping

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
)

// ErrRow is wrapped by errors about one row, which can never be published as it is. Other rows of the table can.
var ErrRow = errors.New("row cannot be mapped")

// ByKey is the partition of a Message whose key selects the partition.
const ByKey int32 = -1

// A Message is a row as it is sent to Kafka. A nil Payload is a tombstone.
type Message struct {
	envelope.Message // under EventRouter it has no attributes except trace context: the headers are in Extra

	EventID   string    // the row's id, in both profiles
	Partition int32     // ByKey, or the value of the column with placement partition
	Timestamp time.Time // of the Kafka record; zero if the table has none: then use the commit's, or none

	Position int64  // value of Config.Position's column, 0 without
	XID      uint64 // value of Config.XID's column, 0 without
}

// A Mapping is a validated Config. It is immutable and safe for concurrent use.
type Mapping struct {
	cfg    Config
	route  route
	placed []placed
	// enveloped means that the payload is a member of a JSON object that has other columns too.
	enveloped bool
}

type placement string

const (
	inHeader    placement = "header"
	inEnvelope  placement = "envelope"
	inPartition placement = "partition"
)

// placed is one column of table.fields.additional.placement.
type placed struct {
	column string
	where  placement
	alias  string
}

// New validates cfg as a whole.
func New(cfg Config) (*Mapping, error) {
	m := &Mapping{cfg: cfg.defaults()}
	var failed []error
	for _, c := range m.cfg.choices() {
		if err := c.check(); err != nil {
			failed = append(failed, err)
		}
	}
	var err error
	if m.route, err = newRoute(m.cfg.RouteRegex, m.cfg.RouteReplacement); err != nil {
		failed = append(failed, err)
	}
	if m.placed, err = parsePlacements(m.cfg.Additional); err != nil {
		failed = append(failed, fmt.Errorf("table.fields.additional.placement: %w", err))
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("mapping: %w", errors.Join(failed...))
	}
	m.enveloped = slices.ContainsFunc(m.placed, func(p placed) bool { return p.where == inEnvelope })
	return m, nil
}

func parsePlacements(text string) ([]placed, error) {
	if text == "" {
		return nil, nil
	}
	var list []placed
	members := map[string]bool{envelopePayload: true}
	for item := range strings.SplitSeq(text, ",") {
		parts := strings.Split(item, ":")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		if len(parts) != 2 && len(parts) != 3 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("%q: want column:placement or column:placement:alias", item)
		}
		p := placed{column: parts[0], where: placement(strings.ToLower(parts[1])), alias: parts[len(parts)-1]}
		if len(parts) == 2 {
			p.alias = p.column
		}
		switch p.where {
		case inHeader, inPartition:
		case inEnvelope:
			if members[p.alias] {
				return nil, fmt.Errorf("%q: the envelope has a member %q already: give another alias", item, p.alias)
			}
			members[p.alias] = true
		default:
			return nil, fmt.Errorf("%q: placement %q: want header, envelope or partition", item, parts[1])
		}
		list = append(list, p)
	}
	return list, nil
}

// Parse makes a Mapping of options as FromOptions reads them.
func Parse(options map[string]string) (*Mapping, error) {
	cfg, err := FromOptions(options)
	if err != nil {
		return nil, err
	}
	return New(cfg)
}

// Config returns the Config that was passed to New, with the defaults filled in.
func (m *Mapping) Config() Config { return m.cfg }

// A role is the use of a column by an option.
type role struct {
	option, column string
	kinds          []kind // allowed types; none: any type
	optional       bool
}

func (m *Mapping) wanted() []role {
	c := m.cfg
	list := []role{
		{option: "table.field.event.id", column: c.ID},
		{option: "table.field.event.key", column: c.Key},
		{option: "route.by.field", column: c.RouteBy},
		{option: "table.field.event.payload", column: c.Payload},
		{option: "tracing.span.context.field", column: c.SpanContext, optional: true},
	}
	add := func(option, column string, kinds ...kind) {
		if column != "" {
			list = append(list, role{option: option, column: column, kinds: kinds})
		}
	}
	if c.Headers == CloudEvents {
		add("table.field.event.type", c.Type)
	}
	add("table.field.event.timestamp", c.Timestamp, kindTimestamp, kindTimestampTZ)
	add("table.field.event.schema.version", c.SchemaVersion, integers...)
	add("table.field.position", c.Position, integers...)
	add("table.field.xid", c.XID, kindXID8)
	for _, p := range m.placed {
		r := role{option: "table.fields.additional.placement", column: p.column, optional: c.Missing == Ignore}
		if p.where == inPartition {
			r.kinds = integers
		}
		list = append(list, r)
	}
	return list
}
