// Package scaffold makes the files of a new service: a handler with its table, tests that run it as in production, a program, and
// a compose file with the servers that it needs.
//
// The files are templates in the folder service. Nothing is written unless everything can be: Files makes them in memory, Write
// writes them to a folder that is new or empty.
package scaffold

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/troupe-go/troupe/topics"
)

//go:embed service/*.tmpl
var templates embed.FS

const module = "github.com/troupe-go/troupe"

// A Service describes the service to make.
type Service struct {
	// Name is the program's name: 1 to 40 lower-case letters, digits and dashes, beginning with a letter.
	Name string
	// Module is the path of its Go module.
	Module string
	// Hop is its part of a flow.
	Hop topics.Hop
	// From is the hop of the same flow whose events it reacts to. Zero: it handles commands.
	From topics.Hop
	// Event is the ce_type of the event that it reacts to. Default: the one that a service made for From emits.
	Event string
	// AvroFile is a file with the Avro schema of that event, which then names it.
	AvroFile string
	// SQL makes handlers with a *sql.Tx instead of a pgx.Tx, Sqlc queries that sqlc generates, and Proto messages in Protobuf, with a
	// schema registry, instead of JSON.
	SQL, Sqlc, Proto bool
	// Replace writes Path into go.mod. By default it is in go.work only, which is not committed.
	Replace bool

	AvroFields []AvroField // of AvroFile; set by Files
	// Troupe is the folder of a checkout of this module, which the service is built against.
	Troupe string
	// Path is Troupe as the files name it, such as ../troupe, so that they fit every machine that has both folders. Default: Troupe.
	Path string
}

// A File is one of the service's files, with its path below the service's folder.
type File struct {
	Path string
	Text []byte
}

var (
	nameRule   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	moduleRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/-]*$`)
)

// only restricts templates to some services.
var only = map[string]func(Service) bool{
	"handles.go": Service.Handles, "handles_test.go": Service.Handles, "ask.go": Service.Handles,
	"reacts.go": Service.Reacts, "reacts_test.go": Service.Reacts,
	"queries.sql": usesSqlc, "sqlc.yaml": usesSqlc, "db.db.go": usesSqlc, "db.models.go": usesSqlc, "db.queries.sql.go": usesSqlc,
	"codec.go": Service.Codec, "messages.go": usesProto,
}

func usesSqlc(s Service) bool  { return s.Sqlc }
func usesProto(s Service) bool { return s.Proto }

// called maps templates to the paths of their files, if these differ.
var called = map[string]string{
	"handles.go": "handler.go", "handles_test.go": "handler_test.go", "reacts.go": "handler.go", "reacts_test.go": "handler_test.go",
	"gitignore": ".gitignore", // under its own name it would be this repository's
	"db.db.go":  "db/db.go", "db.models.go": "db/models.go", "db.queries.sql.go": "db/queries.sql.go",
	"messages.go": "messages/messages.go",
}

// Files returns the files of the service, sorted by path. An error names the invalid setting of the service, or reports that
// Troupe is no checkout.
func (s Service) Files() ([]File, error) {
	switch {
	case !nameRule.MatchString(s.Name):
		return nil, fmt.Errorf("name %q: want 1 to 40 of a-z, 0-9 and -, beginning with a letter", s.Name)
	case !moduleRule.MatchString(s.Module) || strings.HasSuffix(s.Module, "/") || s.Module == module:
		return nil, fmt.Errorf("module %q: want the path of a Go module of your own, such as example.org/%s", s.Module, s.Name)
	case s.Hop.IsZero():
		return nil, errors.New("no hop: want flow.hop, such as booking.seats")
	case s.Reacts() && (s.From.Flow() != s.Hop.Flow() || s.From == s.Hop):
		return nil, fmt.Errorf("reacts to %s: want another hop of the flow %s", s.From, s.Hop.Flow())
	}
	var avsc []byte
	if s.AvroFile != "" {
		var err error
		if avsc, err = s.readAvro(); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the schema %s does not exist, seen from the current folder (the demo's are in %s)",
				s.AvroFile, filepath.Join(s.Troupe, "internal/demo/messages"))
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", s.AvroFile, err)
		}
	}
	if err := s.checkEvent(); err != nil {
		return nil, err
	}
	s.Path = cmp.Or(s.Path, s.Troupe)
	files, err := s.modules()
	if err != nil {
		return nil, err
	}
	if avsc != nil {
		files = append(files, File{s.Heard() + ".avsc", avsc})
	}
	if s.Proto {
		generated, err := s.protobuf()
		if err != nil {
			return nil, err
		}
		files = append(files, generated...)
	}
	all, err := template.ParseFS(templates, "service/*.tmpl")
	if err != nil {
		return nil, err
	}
	for _, t := range all.Templates() {
		name := strings.TrimSuffix(t.Name(), ".tmpl")
		if of := only[name]; of != nil && !of(s) {
			continue
		}
		var b bytes.Buffer
		if err := t.Execute(&b, s); err != nil {
			return nil, err
		}
		file := File{cmp.Or(called[name], name), b.Bytes()}
		if strings.HasSuffix(name, ".go") {
			if file.Text, err = format.Source(file.Text); err != nil {
				return nil, fmt.Errorf("%s: %w", file.Path, err)
			}
		}
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// Write makes the folder, which must be new or empty, with the files in it.
func Write(folder string, files []File) error {
	there, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty (it has %s): name a new folder", folder, there[0].Name())
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, f.Path)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, f.Path), f.Text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
