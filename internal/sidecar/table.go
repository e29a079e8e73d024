package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	glob "path"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/relay/mapping"
	"github.com/troupe-go/troupe/schemas"
)

// tableKey names the table beside the options of its mapping.
const tableKey = "table"

// A tableOf is the table of an outbox.
type tableOf struct {
	name    string           // schema.table
	mapping *mapping.Mapping // nil: it is troupe.outbox
}

// readMapping takes the options of an entry as text, and refuses those that a mapping would.
func readMapping(given any) (map[string]string, error) {
	all, ok := given.(map[string]any)
	if !ok {
		return nil, errors.New("want options, each with its value")
	}
	options := make(map[string]string, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch value := all[name].(type) {
		case map[string]any, nil:
			return nil, fmt.Errorf("%s: want a value", name)
		case []any:
			options[name] = textOf(value)
		default:
			options[name] = fmt.Sprint(value)
		}
	}
	_, err := tableOfOptions(options)
	return options, err
}

func tableOfOptions(options map[string]string) (of tableOf, err error) {
	of.name = options[tableKey]
	if schema, table, ok := strings.Cut(of.name, "."); !ok || schema == "" || table == "" {
		return of, fmt.Errorf("%s: %q: want the table as schema.table", tableKey, of.name)
	}
	rest := maps.Clone(options)
	delete(rest, tableKey)
	cfg, err := mapping.FromOptions(rest)
	if err != nil {
		return of, err
	}
	of.mapping, err = mapping.New(cfg)
	return of, err
}

// table is that of the settings' outbox.
func (v values) table() (tableOf, error) {
	if v.mapping == nil {
		return tableOf{}, nil
	}
	return tableOfOptions(v.mapping)
}

// avro makes the encoder of JSON payloads, where there is a registry. It connects to nothing.
func (v values) avro(r *relay.Config) error {
	address := v.text[payloadRegistry.name]
	if address == "" {
		return nil
	}
	client, err := schemas.NewRegistry(address)
	if err != nil { // which does not repeat the address
		return usagef("%s (from %s): %w", payloadRegistry.name, v.from[payloadRegistry.name], err)
	}
	strategy, err := v.oneOf(subjectStrategy)
	if err != nil {
		return err
	}
	if r.Avro, err = schemas.NewJSONEncoder(client, schemas.Strategy(strategy)); err != nil {
		return err
	}
	if v.text[avroTopics.name] == "" {
		return nil
	}
	var patterns []string
	for part := range strings.SplitSeq(v.text[avroTopics.name], ",") {
		part = strings.TrimSpace(part)
		if _, err := glob.Match(part, ""); err != nil || part == "" {
			return v.bad(avroTopics, "topics, with * for any text")
		}
		patterns = append(patterns, part)
	}
	r.AvroTopic = func(topic string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			fits, _ := glob.Match(p, topic)
			return fits
		})
	}
	return nil
}

// mappingSchema is made from the mapping's own options.
func mappingSchema() object {
	all := object{tableKey: object{"type": "string", "pattern": `^[^.]+\..+$`, "description": "schema.table"}}
	for _, o := range mapping.Options() {
		one := object{"type": "string", "minLength": 1}
		switch {
		case o.Bool:
			one = object{"type": "boolean", "default": o.Default == "true"}
		case len(o.Words) > 0:
			one["enum"] = o.Words
		case o.Name == "table.fields.additional.placement":
			one = object{"oneOf": []object{{"type": "string"}, {"type": "array", "items": object{"type": "string"}, "minItems": 1}}}
		}
		if o.Default != "" && !o.Bool {
			one["default"] = o.Default
		}
		all[o.Name] = one
	}
	return object{
		"type": "object", "required": []string{tableKey}, "additionalProperties": false, "properties": all,
		"description": "a table that is not troupe.outbox, with the options of Debezium's EventRouter",
	}
}

// readStats is what can be known of a table with a mapping: its rows in trouble.
func (of tableOf) readStats(ctx context.Context, pool *pgxpool.Pool) (s outbox.Stats, err error) {
	err = pool.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE status = 'retrying'), count(*) FILTER (WHERE status = 'parked')
		FROM troupe.mapped_trouble WHERE table_name = $1`, of.name).Scan(&s.Pending, &s.Retrying, &s.Parked)
	return s, notMigrated(err)
}

// scanParked reads a row of a list. The key of a mapped row is its bytes.
func (of tableOf) scanParked(one pgx.CollectableRow) (r parkedRow, err error) {
	if of.mapping == nil {
		return r, one.Scan(r.fields()...)
	}
	var key []byte
	r.mapped = true
	err = one.Scan(&r.Position, (*[16]byte)(&r.ID), &r.EventID, &r.Topic, &key, &r.Attempts, &r.LastError, &r.FirstFailed)
	r.Key = keyText(key)
	return r, err
}

// keyText is as list_parked.sql has it.
func keyText(key []byte) string {
	if text := shown(key); text != nil && !strings.HasPrefix(*text, `\x`) {
		return *text
	}
	if key == nil {
		return ""
	}
	return fmt.Sprintf("0x%x", key)
}

// readParkedRow shows the message that the mapping makes of the row now, else the row's columns.
func (of tableOf) readParkedRow(ctx context.Context, db querier, id uuid.UUID) (r parkedRow, err error) {
	found, err := db.Query(ctx, showMapped, pgx.NamedArgs{"table": of.name, "id": [16]byte(id)})
	if err != nil {
		return r, notMigrated(err)
	}
	r, err = pgx.CollectOneRow(found, func(one pgx.CollectableRow) (r parkedRow, err error) {
		var key, kept []byte
		r.mapped = true
		err = one.Scan(&r.Position, (*[16]byte)(&r.ID), &r.EventID, &r.Topic, &key, &r.Attempts, &r.LastError, &r.FirstFailed, &kept)
		if err != nil {
			return r, err
		}
		r.Key = keyText(key)
		var row mapping.Row
		if err := json.Unmarshal(kept, &row); err != nil {
			return r, err
		}
		r.fill(row, of.mapping)
		return r, nil
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return r, notParked{id}
	}
	return r, notMigrated(err)
}

func (r *parkedRow) fill(row mapping.Row, m *mapping.Mapping) {
	message, err := row.Message(m)
	if err != nil {
		r.Columns = make(map[string]*string, len(row.Columns))
		for n, c := range row.Columns {
			r.Columns[c.Name] = shown(row.Values[n].Data)
		}
		return
	}
	headers := make(map[string]string)
	for _, h := range message.Headers() {
		headers[h.Key] = string(h.Value)
	}
	text, _ := json.Marshal(headers) // of texts
	r.Headers, r.Type, r.Payload = string(text), message.Type, shown(message.Payload)
	if !message.Timestamp.IsZero() {
		r.Created = &message.Timestamp
	}
}
