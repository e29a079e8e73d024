package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	glob "path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/schemas"
)

// tableKey is the key of the table's name, which is next to the options of its mapping.
const tableKey = "table"

// readMapping returns the options of an entry as text, and refuses options that mapping refuses.
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

func tableOfOptions(options map[string]string) (of desk.Table, err error) {
	of.Name = options[tableKey]
	if schema, table, ok := strings.Cut(of.Name, "."); !ok || schema == "" || table == "" {
		return of, fmt.Errorf("%s: %q: want the table as schema.table", tableKey, of.Name)
	}
	rest := maps.Clone(options)
	delete(rest, tableKey)
	of.Mapping, err = mapping.Parse(rest)
	return of, err
}

// table returns the table of the settings' outbox.
func (v values) table() (desk.Table, error) {
	if v.mapping == nil {
		return desk.Table{}, nil
	}
	return tableOfOptions(v.mapping)
}

// avro makes the encoder of JSON payloads, if a registry is configured. It connects to nothing.
func (v values) avro(r *relay.Config) error {
	address := v.text[payloadRegistry.name]
	if address == "" {
		return nil
	}
	client, err := schemas.NewRegistry(address)
	if err != nil { // the error does not repeat the address
		return usagef("%s (from %s): %w", payloadRegistry.name, v.from[payloadRegistry.name], err)
	}
	strategy, err := v.oneOf(subjectStrategy)
	if err != nil {
		return err
	}
	if r.Avro, err = schemas.NewJSONEncoder(client, schemas.Strategy(strategy), formats.All()...); err != nil {
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

// mappingSchema makes the JSON Schema of a mapping from the mapping's own options.
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

// readMappedStats reads the only figures that are known of a table with a mapping: its failed rows.
func readMappedStats(ctx context.Context, pool *pgxpool.Pool, of desk.Table) (s retention.Stats, err error) {
	err = pool.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE status = 'retrying'), count(*) FILTER (WHERE status = 'parked')
		FROM troupe.mapped_failures WHERE table_name = $1`, of.Name).Scan(&s.Pending, &s.Retrying, &s.Parked)
	s.Failed = s.Pending
	return s, err
}
