package saga

import (
	"bytes"
	_ "embed" // the schema
)

//go:embed saga.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of definitions, with a description of each field. Parse refuses everything that the
// schema refuses, except in four points: the schema requires names of fields in lower case and all four fields of a Retry, and allows
// no null and no empty string. Parse also checks rules that a schema cannot express.
func Schema() []byte { return bytes.Clone(schema) }
