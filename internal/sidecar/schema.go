package sidecar

import (
	"github.com/spf13/cobra"
)

func (p Program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the file of --config",
		Long: `schema prints the JSON Schema (draft 2020-12) of the file of --config, for editors and for
checks before a deployment. The program itself checks more: files, addresses, and combinations of settings.`,
		Example: `  outbox-relay schema > relay.schema.json`,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			return printJSON(p.Stdout, fileSchema())
		},
	}
}

type object = map[string]any

// fileSchema makes the JSON Schema of the file from the table of settings.
func fileSchema() object {
	top := properties(everything)
	one := properties(eachSettings)
	one[nameKey] = object{
		"type": "string", "pattern": entryName.String(), "not": object{"pattern": "--"},
		"description": "the outbox in logs, metrics and admin requests, and in its variables",
	}
	one[mappingKey] = mappingSchema()
	top[outboxesKey] = object{
		"type": "array", "minItems": 1, "maxItems": mostEntries,
		"description": "several outboxes in one process; what an entry does not say is taken from the settings above",
		"items": object{
			"type": "object", "required": []string{nameKey}, "additionalProperties": false, "properties": one,
		},
	}
	return object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "outbox-relay --config",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           top,
	}
}

func properties(settings []setting) object {
	all := make(object, len(settings))
	for _, s := range settings {
		all[s.name] = s.schema()
		if s.secret {
			all[s.fileName()] = object{"type": "string", "description": "file with " + s.name}
		}
		if s.printed {
			all[s.commandName()] = object{"type": "string", "description": "command that prints " + s.name + ", run without a shell"}
		}
	}
	return all
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

func (s setting) schema() object {
	o := object{"type": "string", "description": plainUsage(s)}
	switch s.kind {
	case list:
		item := object{"type": "string"}
		o = object{"description": o["description"], "oneOf": []object{
			{"type": "string"}, {"type": "array", "items": item, "minItems": 1},
		}}
	case number:
		o["type"], o["minimum"], o["maximum"] = "integer", s.least, s.most
	case duration:
		o["pattern"] = durationPattern
	case choice:
		delete(o, "type")
		values := make([]any, 0, len(s.choices))
		for _, c := range s.choices {
			switch c {
			case "true":
				values = append(values, true)
			case "false":
				values = append(values, false)
			default:
				values = append(values, c)
			}
		}
		o["enum"] = values
	}
	if s.value != "" {
		o["default"] = s.defaultValue()
	}
	return o
}
