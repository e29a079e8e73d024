package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/payload"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/internal/shapes"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/personal"
)

// Limits on input.
const (
	maxSchema  = 1 << 20 // bytes of a file
	maxSchemas = 10_000  // files
)

// extensions are the ends of the names of schema files.
var extensions = []string{".avsc", ".proto", ".schema.json"}

func isSchema(name string) bool {
	return slices.ContainsFunc(extensions, func(end string) bool { return strings.HasSuffix(name, end) })
}

// A schemaFile is the schema of one type of messages.
type schemaFile struct {
	path, subject string
	format        schemas.Format                 // nil for Avro
	files         []payload.File                 // its imports, then the schema
	message       protoreflect.MessageDescriptor // nil in other formats than Protobuf
}

func (f schemaFile) avsc() string { return f.files[len(f.files)-1].Text }

// personal returns the kind of each personal field, by the field's path.
func (f schemaFile) personal() (fields map[string]string, err error) {
	switch {
	case f.message != nil:
		fields, err = personal.ProtobufFields(f.message)
	case f.format != nil:
		fields, err = personal.Fields(f.format.ContentType(), f.avsc())
	default:
		fields, err = personal.Fields(envelope.Avro, f.avsc())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return fields, nil
}

// shape returns what the schema declares of the fields.
func (f schemaFile) shape() (shape *expr.Shape, err error) {
	switch {
	case f.message != nil:
		return shapes.Protobuf(f.message), nil
	case f.format != nil:
		shape, err = shapes.JSON(f.avsc())
	default:
		shape, err = shapes.Avro(f.avsc())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return shape, nil
}

// isAvro returns an error for a schema that only a registry can compare with its earlier versions.
func (f schemaFile) isAvro() error {
	if f.format != nil {
		return fmt.Errorf("%s is %s, and only a registry compares its versions: give --registry", f.path, f.format.SchemaType())
	}
	return nil
}

// schema returns the schema for the registry. With register it registers the files that the schema imports.
func (f schemaFile) schema(ctx context.Context, client *registry.Client, register bool) (sr.Schema, error) {
	kind := sr.TypeAvro
	if f.format != nil {
		if err := kind.UnmarshalText([]byte(f.format.SchemaType())); err != nil {
			return sr.Schema{}, err
		}
	}
	return payload.Refer(ctx, client, kind, f.files, !register)
}

// readFiles reads files, and all schema files of folders, in the order of their paths. It refuses a type that is in two files.
func readFiles(paths []string) (files []schemaFile, err error) {
	for _, path := range paths {
		folder, names, err := schemaNames(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all, err := declared(disk(folder), name, filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			files = append(files, all...)
		}
	}
	slices.SortStableFunc(files, func(a, b schemaFile) int { return strings.Compare(a.path, b.path) })
	files = slices.CompactFunc(files, func(a, b schemaFile) bool { return a.path == b.path && a.subject == b.subject })
	if len(files) == 0 {
		return nil, fmt.Errorf("no %s file in %s", strings.Join(extensions, ", "), strings.Join(paths, ", "))
	}
	return files, onlyOnce(files)
}

// schemaNames returns the names of the schema files in path, which is a folder, or of the one file that path names, in its folder.
func schemaNames(path string) (folder string, names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() {
		return filepath.Dir(path), []string{filepath.Base(path)}, nil
	}
	folder = path
	err = filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && isSchema(at) {
			name, err := filepath.Rel(folder, at)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(name))
		}
		if len(names) > maxSchemas {
			return fmt.Errorf("%s: more than %d files", folder, maxSchemas)
		}
		return err
	})
	return folder, names, err
}

// declared returns the types of messages of the file name, which people know as path.
func declared(files fs.FS, name, path string) (all []schemaFile, err error) {
	format := formats.Of(name)
	if format == nil {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		subject, err := avsc.Subject(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return []schemaFile{{path: path, subject: subject, files: []payload.File{{Text: string(text)}}}}, nil
	}
	types, err := format.Declare(files, name)
	if err != nil {
		return nil, err
	}
	for _, t := range types {
		message, _ := t.Message.(protoreflect.MessageDescriptor)
		all = append(all, schemaFile{path: path, subject: t.Name, format: format, files: t.Files, message: message})
	}
	return all, nil
}

// disk reads the files of a folder, each up to maxSchema.
type disk string

func (d disk) Open(name string) (fs.File, error) { return os.DirFS(string(d)).Open(name) }

func (d disk) ReadFile(name string) ([]byte, error) {
	text, err := readFile(filepath.Join(string(d), filepath.FromSlash(name)))
	return []byte(text), err
}

// revision reads the files of a folder as they were in a commit.
type revision struct {
	ctx          context.Context
	folder, hash string
}

func (r revision) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (r revision) ReadFile(name string) ([]byte, error) {
	text, err := git(r.ctx, r.folder, "cat-file", "blob", r.hash+":./"+name)
	return []byte(text), err
}

func readFile(path string) (string, error) {
	text, err := readUpTo(path, maxSchema+1)
	if err == nil && len(text) > maxSchema {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxSchema)
	}
	return string(text), err
}

// onlyOnce returns an error for a type that is in two files.
func onlyOnce(files []schemaFile) error {
	by := make(map[string]string)
	for _, f := range files {
		if first, twice := by[f.subject]; twice {
			return fmt.Errorf("%s: %s is described in %s already", f.path, f.subject, first)
		}
		by[f.subject] = f.path
	}
	return nil
}

// places holds histories of files and revisions: by subject, oldest first.
type places map[string][]earlierFile

type earlierFile struct {
	schemaFile
	label string
}

func (p places) versions(_ context.Context, f schemaFile) (all []avsc.Version, err error) {
	for _, e := range p[f.subject] {
		if err := e.isAvro(); err != nil {
			return nil, err
		}
		all = append(all, avsc.Version{Label: e.label, Avsc: e.avsc()})
	}
	return all, f.isAvro()
}

func (p places) latest(_ context.Context, f schemaFile) (label string, of payload.Source, err error) {
	all := p[f.subject]
	if len(all) == 0 {
		return "", of, nil
	}
	last := all[len(all)-1]
	return last.label, payload.SourceOf(last.files), nil
}

// level returns the level that a running flow needs, for any number of earlier versions.
func (places) level(context.Context, string) (avsc.Level, error) {
	return avsc.FullTransitive, nil
}

func readHistory(ctx context.Context, against, paths []string) (places, error) {
	all := make(places)
	for _, place := range against {
		var files []schemaFile
		var err error
		revision, git := strings.CutPrefix(place, "git:")
		if git {
			files, err = readRevision(ctx, revision, paths)
		} else {
			files, err = readFiles([]string{place})
		}
		if err != nil {
			return nil, fmt.Errorf("--against %s: %w", place, err)
		}
		for _, f := range files {
			label := f.path
			if git {
				label = revision
			}
			all[f.subject] = append(all[f.subject], earlierFile{f, label})
		}
	}
	return all, nil
}

// readRevision reads the same paths from a revision of the git repository that contains them. A path that did not exist then is
// no error.
func readRevision(ctx context.Context, name string, paths []string) (files []schemaFile, err error) {
	if name == "" {
		return nil, errors.New("want git:REVISION, such as git:origin/main")
	}
	for _, path := range paths {
		folder, base := path, "."
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if !info.IsDir() {
			folder, base = filepath.Split(path)
			folder = filepath.Clean(folder) // "" is "."
		}
		commit, err := git(ctx, folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("no such revision in the repository of %s: %w", path, err)
		}
		hash := strings.TrimSpace(commit)
		listed, err := git(ctx, folder, "ls-tree", "-r", "-z", "--name-only", hash, "--", base)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Split(strings.TrimSuffix(listed, "\x00"), "\x00") {
			if name == "" || base == "." && !isSchema(name) {
				continue
			}
			all, err := declared(revision{ctx, folder, hash}, name, filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			files = append(files, all...)
		}
	}
	return files, onlyOnce(files)
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		if len(said) > 300 {
			said = strings.ToValidUTF8(said[:300], "") + "…"
		}
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return stdout.String(), nil
}
