package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
	"github.com/troupe-go/troupe/internal/registry"
)

func newSchema() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "schema",
		Short: "Check, register and compare the schemas of messages",
		Long: `schema works on files of three formats. An .avsc file (Avro) describes one record, a .schema.json file (JSON Schema) one type, by its
title, and a .proto file (Protobuf) each message that is not within another. The full name of the type is its subject in the registry.
The imports of a .proto file are looked for in the given folder, or in the folder of the given file.
The earlier versions of a type have the same full name in the places of --against, oldest first, or are under its subject in the
registry. This program compares versions of Avro; the registry compares versions of Protobuf and JSON Schema.`,
		Example: `  troupe schema check --against git:origin/main schemas/
  troupe schema register --registry http://localhost:8081 schemas/
  troupe schema diff --against git:v1.4.0 schemas/order/PaymentCharged.avsc`,
	}, newSchemaCheck(), newSchemaRegister(), newSchemaDiff())
}

// earlier holds the flags for the source of earlier versions.
type earlier struct {
	against  []string
	registry string
}

func (e *earlier) declare(flags *pflag.FlagSet) {
	flags.StringArrayVar(&e.against, "against", nil,
		"earlier versions: a file or folder, or `git:REVISION` for the same paths there; repeat it, oldest first")
	e.declareRegistry(flags)
}

func (e *earlier) declareRegistry(flags *pflag.FlagSet) {
	flags.StringVar(&e.registry, "registry", "",
		"`URL` of a schema registry [SCHEMA_REGISTRY_URL]; the variable keeps a password off the process list")
}

// wrong returns an error for invalid flags. --against takes precedence over the environment.
func (e *earlier) wrong() error {
	if len(e.against) > 0 && e.registry != "" {
		return errors.New("--against and --registry: want one of them")
	}
	if len(e.against) > 0 {
		return nil
	}
	_, err := e.openRegistry()
	return err
}

// open reads earlier versions from files and revisions; a registry is read later.
func (e *earlier) open(ctx context.Context, paths []string) (history, error) {
	if len(e.against) > 0 {
		return readHistory(ctx, e.against, paths)
	}
	registry, err := e.openRegistry()
	if err != nil {
		return nil, err
	}
	return registered{registry}, nil
}

func (e *earlier) openRegistry() (*registry.Client, error) {
	address := cmp.Or(e.registry, os.Getenv("SCHEMA_REGISTRY_URL"))
	if address == "" {
		return nil, errors.New("nothing to compare with: give --against or --registry")
	}
	return registry.New(address)
}

// A history has the earlier versions of a subject.
type history interface {
	// versions returns the versions of an Avro schema.
	versions(ctx context.Context, f schemaFile) ([]avsc.Version, error)
	// latest returns the latest version, of any format, with its label. Without one the label is empty.
	latest(ctx context.Context, f schemaFile) (label string, of payload.Source, err error)
	level(ctx context.Context, subject string) (avsc.Level, error)
}

// registered is the history of a registry.
type registered struct{ *registry.Client }

func (r registered) versions(ctx context.Context, f schemaFile) ([]avsc.Version, error) {
	if err := f.isAvro(); err != nil {
		return nil, err
	}
	return r.Versions(ctx, f.subject)
}

func (r registered) latest(ctx context.Context, f schemaFile) (label string, of payload.Source, err error) {
	label, stored, err := r.Newest(ctx, f.subject)
	want := sr.TypeAvro.String()
	if f.format != nil {
		want = f.format.SchemaType()
	}
	if err == nil && label != "" && stored.Format.String() != want {
		err = fmt.Errorf("subject %s is %s, and %s is %s", f.subject, stored.Format, f.path, want)
	}
	return label, stored.Source, err
}

func (r registered) level(ctx context.Context, subject string) (avsc.Level, error) {
	return r.Level(ctx, subject)
}

// levels lists the levels of registries.
const levels = "BACKWARD|BACKWARD_TRANSITIVE|FORWARD|FORWARD_TRANSITIVE|FULL|FULL_TRANSITIVE|NONE"

// levelVar declares --level, in any case.
func levelVar(flags *pflag.FlagSet, level *avsc.Level, otherwise string) {
	flags.Func("level", "level of compatibility: `"+levels+"` (default: "+otherwise+")", func(text string) (err error) {
		*level, err = avsc.ParseLevel(text)
		return err
	})
}

// A verdict is the result of the check of one file.
type verdict struct {
	File     string         `json:"file"`
	Subject  string         `json:"subject"`
	Level    avsc.Level     `json:"level"`
	Earlier  []string       `json:"earlier"` // the versions that it was compared with
	OK       bool           `json:"ok"`
	Problems []avsc.Problem `json:"problems"`
	Registry string         `json:"registry,omitempty"` // the registry's reasons to refuse a schema without Problems
}

// judgeByRegistry has the registry check a schema that is not Avro, at its own level.
func judgeByRegistry(ctx context.Context, f schemaFile, h history, level avsc.Level) (v verdict, err error) {
	r, ok := h.(registered)
	if !ok {
		return v, f.isAvro()
	}
	if level != "" {
		return v, fmt.Errorf("%s is %s, and the registry checks it at its own level: leave out --level", f.path, f.format.SchemaType())
	}
	label, _, err := r.latest(ctx, f)
	if err != nil {
		return v, err
	}
	v = verdict{File: f.path, Subject: f.subject, OK: true, Earlier: []string{}, Problems: []avsc.Problem{}}
	if v.Level, err = r.level(ctx, f.subject); err != nil || label == "" {
		return v, err
	}
	v.Earlier = append(v.Earlier, label)
	s, err := f.schema(ctx, r.Client, false)
	if err != nil {
		return v, fmt.Errorf("%s: %w", f.path, err)
	}
	return v, ask(ctx, r.Client, f.subject, s, &v)
}

// judge checks a file at level, or, if that is empty, at the history's own.
func judge(
	ctx context.Context, f schemaFile, h history, level avsc.Level,
) (v verdict, versions []avsc.Version, err error) {
	if f.format != nil {
		v, err = judgeByRegistry(ctx, f, h, level)
		return v, nil, err
	}
	if level == "" {
		if level, err = h.level(ctx, f.subject); err != nil {
			return v, nil, err
		}
	}
	if versions, err = h.versions(ctx, f); err != nil {
		return v, nil, err
	}
	problems, err := avsc.Check(level, avsc.Version{Label: f.path, Avsc: f.avsc()}, versions...)
	if err != nil {
		return v, nil, err
	}
	v = verdict{
		File: f.path, Subject: f.subject, Level: level, OK: len(problems) == 0,
		Earlier: []string{}, Problems: append([]avsc.Problem{}, problems...), // never null in JSON
	}
	compared := versions
	if !level.Transitive() && len(compared) > 1 {
		compared = compared[len(compared)-1:]
	}
	for _, c := range compared {
		if level != avsc.None {
			v.Earlier = append(v.Earlier, c.Label)
		}
	}
	return v, versions, nil
}

// lines returns the verdict for people.
func (v verdict) lines() (lines []string) {
	switch {
	case !v.OK:
		lines = append(lines, fmt.Sprintf("FAIL  %s (%s) in %s", v.Subject, v.Level, v.File))
	case len(v.Earlier) == 0 && v.Level != avsc.None:
		lines = append(lines, fmt.Sprintf("new   %s", v.Subject))
	default:
		lines = append(lines, fmt.Sprintf("ok    %s (%s)", v.Subject, v.Level))
	}
	for _, p := range v.Problems {
		who := "readers of the new version, messages of " + p.Earlier
		if p.Direction == avsc.Forward {
			who = "readers of " + p.Earlier + ", messages of the new version"
		}
		lines = append(lines, "      "+cmp.Or(p.Path, v.Subject)+": "+p.Reason, "        between: "+who, "        remedy:  "+p.Remedy)
	}
	if v.Registry != "" {
		lines = append(lines, "      the registry refuses it: "+v.Registry)
	}
	return lines
}
