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
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// Database returns the name of the service's database.
func (s Service) Database() string { return strings.ReplaceAll(s.Name, "-", "_") }

// Reacts reports whether it reacts to another hop.
func (s Service) Reacts() bool { return !s.From.IsZero() }

// Handles reports whether it handles commands.
func (s Service) Handles() bool { return s.From.IsZero() }

// Hears describes its input, as a part of a sentence.
func (s Service) Hears() string {
	if s.Reacts() {
		return "reacts to the events of " + s.From.Events()
	}
	return "handles the commands of " + s.Hop.Commands()
}

// only restricts templates to one kind of service.
var only = map[string]func(Service) bool{
	"seats.go": Service.Handles, "seats_test.go": Service.Handles, "ask.go": Service.Handles,
	"tickets.go": Service.Reacts, "tickets_test.go": Service.Reacts,
}

// called maps templates to the names of their files, if these differ.
var called = map[string]string{
	"seats.go": "handler.go", "seats_test.go": "handler_test.go", "tickets.go": "handler.go", "tickets_test.go": "handler_test.go",
	"gitignore": ".gitignore", // under its own name it would be this repository's
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
	s.Path = cmp.Or(s.Path, s.Troupe)
	files, err := s.modules()
	if err != nil {
		return nil, err
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
		files = append(files, File{cmp.Or(called[name], name), b.Bytes()})
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
		if err := os.WriteFile(filepath.Join(folder, f.Path), f.Text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// direct lists the modules that the files import, apart from this one.
var direct = []string{"github.com/jackc/pgx/v5", "github.com/rs/zerolog", "github.com/stretchr/testify"}

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`)

// modules returns go.mod and go.sum with the versions that the checkout is tested with, so that the service builds without
// network access to find versions.
func (s Service) modules() ([]File, error) {
	own, err := os.ReadFile(filepath.Join(s.Troupe, "go.mod"))
	if err != nil || !strings.HasPrefix(string(own), "module "+module+"\n") {
		return nil, fmt.Errorf("%q is no checkout of %s: want the folder with its go.mod", s.Troupe, module)
	}
	sums, err := os.ReadFile(filepath.Join(s.Troupe, "go.sum"))
	if err != nil {
		return nil, err
	}
	version := regexp.MustCompile(`(?m)^go \S+$`).FindString(string(own))
	var b, rest strings.Builder
	fmt.Fprintf(&b, "module %s\n\n%s\n\nrequire (\n", s.Module, version)
	for _, r := range requirement.FindAllStringSubmatch(string(own), -1) {
		if slices.Contains(direct, r[1]) {
			fmt.Fprintf(&b, "\t%s %s\n", r[1], r[2])
		} else {
			fmt.Fprintf(&rest, "\t%s %s // indirect\n", r[1], r[2])
		}
	}
	fmt.Fprintf(&b, "\t%s v0.0.0\n)\n\n// It is not published yet.\nreplace %s => %s\n\n// All modules of Troupe's programs and tests, so that no version has to be looked up; go mod tidy removes the unused ones.\nrequire (\n%s)\n", module, module, quoted(s.Path), rest.String())
	return []File{{"go.mod", []byte(b.String())}, {"go.sum", sums}}, nil
}

// quoted returns a path in the syntax of go.mod.
func quoted(path string) string {
	if strings.ContainsAny(path, " \t\"'`(),") {
		return strconv.Quote(path)
	}
	return path
}
