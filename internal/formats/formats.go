// Package formats lists the payload formats that tools read and write besides Avro.
package formats

import (
	"strings"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
	"github.com/troupe-go/troupe/schemas/protobuf"
)

// All returns the formats, without bound types.
func All() []schemas.Format {
	return []schemas.Format{protobuf.New(nil), jsonschema.New()}
}

// Of returns the format of a schema file by the end of its name, or nil for Avro.
func Of(name string) schemas.Format {
	switch {
	case strings.HasSuffix(name, ".proto"):
		return protobuf.New(nil)
	case strings.HasSuffix(name, ".json"):
		return jsonschema.New()
	}
	return nil
}
