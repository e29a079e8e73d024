package avsc

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Limits on a schema. A registry stores its schemas in a Kafka topic, whose messages have at most 1 MiB by default.
const (
	MaxSchema      = 1 << 20 // bytes of a schema
	MaxSchemaTypes = 10_000  // number of fields, types, branches and symbols of a schema, and of items of its defaults
	maxSchemaDepth = 600     // levels of JSON: three for each level that a payload may have
)

// CheckSize refuses a schema above the limits, before the libraries allocate memory for its types. A text that is not JSON
// passes, since the parser's error describes it better.
func CheckSize(avsc string) error {
	if len(avsc) > MaxSchema {
		return fmt.Errorf("the schema has %d bytes, more than %d", len(avsc), MaxSchema)
	}
	var within []json.Delim
	types := 0
	for d := json.NewDecoder(strings.NewReader(avsc)); ; {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		delim, _ := token.(json.Delim)
		if delim == '}' || delim == ']' {
			within = within[:len(within)-1]
			continue
		}
		if delim == '{' || len(within) > 0 && within[len(within)-1] == '[' {
			if types++; types > MaxSchemaTypes {
				return fmt.Errorf("the schema has more than %d fields and types", MaxSchemaTypes)
			}
		}
		if delim != 0 {
			if within = append(within, delim); len(within) > maxSchemaDepth {
				return fmt.Errorf("the schema has more than %d levels of JSON", maxSchemaDepth)
			}
		}
	}
}
