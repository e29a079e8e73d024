package scaffold

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// An AvroField is a field of the event's Go type. Key is its name in the schema.
type AvroField struct{ Name, Type, Key string }

// goTypes maps types of Avro to types of Go.
var goTypes = map[string]string{
	"string": "string", "long": "int64", "int": "int32", "boolean": "bool", "double": "float64", "float": "float32", "bytes": "[]byte",
}

// avroName matches the names of fields that Avro allows. They are in the code of the service.
var avroName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readAvro returns the text of AvroFile, and sets Event and AvroFields. It leaves out fields whose type is not in goTypes.
func (s *Service) readAvro() ([]byte, error) {
	text, err := os.ReadFile(s.AvroFile)
	if err != nil {
		return nil, err
	}
	var record struct {
		Type, Name, Namespace string
		Fields                []struct {
			Name string
			Type json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return nil, err
	}
	if record.Type != "record" || record.Name == "" {
		return nil, errors.New("want the schema of a record")
	}
	for _, f := range record.Fields {
		if !avroName.MatchString(f.Name) {
			return nil, fmt.Errorf("field %q: a name in Avro has letters, digits and underscores, and begins with no digit", f.Name)
		}
	}
	s.Event = record.Name
	if record.Namespace != "" && !strings.Contains(record.Name, ".") {
		s.Event = record.Namespace + "." + record.Name
	}
	for _, f := range record.Fields {
		var of string
		_ = json.Unmarshal(f.Type, &of) // other types are objects and arrays
		if of = goTypes[of]; of != "" {
			s.AvroFields = append(s.AvroFields, AvroField{Name: camel(f.Name), Type: of, Key: f.Name})
		}
	}
	return text, nil
}
