package flow

import (
	"bytes"
	_ "embed" // the schema
)

//go:embed reactions.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of reactions.json, with a description of each field. Parse refuses whatever the
// schema refuses, and also checks rules that a schema cannot express.
func Schema() []byte { return bytes.Clone(schema) }
