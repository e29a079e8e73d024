package reactions

import (
	"bytes"
	_ "embed" // the schema
)

//go:embed reactions.schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of reactions.json, with a description of each field. What it refuses, Parse
// refuses too; Parse also checks what a schema cannot say.
func Schema() []byte { return bytes.Clone(schema) }
