package saga

import (
	"bytes"
	_ "embed" // the schema
)

//go:embed saga.schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of definitions, with a description of each field. What it refuses, Parse
// refuses too, but for what it asks to be spelled out: the names of fields in lower case, no nulls and no empty words, all
// four fields of a Retry.
// Parse also checks what a schema cannot say.
func Schema() []byte { return bytes.Clone(schema) }
