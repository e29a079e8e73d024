package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
)

// registration is the result for one file.
type registration struct {
	File    string `json:"file"`
	Subject string `json:"subject"`
	ID      uint32 `json:"id,omitempty"` // none in a dry run that would create it
	New     bool   `json:"new"`
}

func newSchemaRegister() *cobra.Command {
	var (
		to     earlier
		level  avsc.Level
		output format
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "register [flags] FILE|FOLDER…",
		Short: "Register schemas under their full names",
		Long: `register makes each schema a version of its subject, and prints the ids. A file that a .proto file imports is registered under its path. A version that exists already keeps its id, so you
can run register again. Before it registers anything, every file is checked, by this program and by the registry: if one is
incompatible with its earlier versions, none is registered, and the exit status is 1.`,
		Example: `  troupe schema register --registry http://localhost:8081 schemas/
  SCHEMA_REGISTRY_URL=https://user:password@registry.example troupe schema register --level FULL_TRANSITIVE schemas/`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			registry, err := to.openRegistry()
			if err != nil {
				return errors.New("no registry: give --registry or set SCHEMA_REGISTRY_URL to one's URL")
			}
			files, err := readFiles(paths)
			if err != nil {
				return failed(err)
			}
			refused, err := refusals(cmd.Context(), registry, files, level)
			if err != nil {
				return failed(err)
			}
			if len(refused) > 0 {
				if err := printVerdicts(cmd, output, refused); err != nil {
					return failed(err)
				}
				return failed(fmt.Errorf("nothing was registered: %d of %d schemas do not go with their earlier versions",
					len(refused), len(files)))
			}
			done, err := register(cmd.Context(), registry, files, dryRun)
			if printing := printRegistrations(cmd, output, done); err == nil {
				err = printing
			}
			if err == nil && dryRun && output.forPeople() {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "Nothing was done.")
			}
			return failed(err)
		},
	}
	cmd.Flags().SortFlags = false
	to.declareRegistry(cmd.Flags())
	levelVar(cmd.Flags(), &level, "the registry's")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check, print the versions that would be registered, and register none")
	output.declare(cmd)
	return cmd
}

// refusals returns the verdicts on files that must not be registered. A schema that is registered already is not checked.
func refusals(
	ctx context.Context, client *registry.Client, files []schemaFile, level avsc.Level,
) (refused []verdict, err error) {
	for _, f := range files {
		if known, err := isRegistered(ctx, client, f); err != nil {
			return nil, err
		} else if known > 0 {
			continue
		}
		v, versions, err := judge(ctx, f, registered{client}, level)
		if err != nil {
			return nil, err
		}
		if v.OK && len(versions) > 0 {
			if err := ask(ctx, client, f.subject, sr.Schema{Schema: f.avsc()}, &v); err != nil {
				return nil, err
			}
		}
		if !v.OK {
			refused = append(refused, v)
		}
	}
	return refused, nil
}

// isRegistered returns the id of a file's schema, or zero if it, or one that it imports, is not registered.
func isRegistered(ctx context.Context, client *registry.Client, f schemaFile) (id uint32, err error) {
	s, err := f.schema(ctx, client, false)
	if err == nil {
		id, _, err = client.Lookup(ctx, f.subject, s)
	}
	if errors.Is(err, registry.ErrNoSchema) {
		return 0, nil
	}
	return id, err
}

// ask adds the registry's own verdict.
func ask(ctx context.Context, client *registry.Client, subject string, s sr.Schema, v *verdict) error {
	ok, reasons, err := client.Accepts(ctx, subject, s)
	if err != nil || ok {
		return err
	}
	v.OK, v.Registry = false, cmp.Or(strings.Join(reasons, "; "), "without a reason; see the subject's level and rules there")
	return nil
}

// register continues until the first failure, and returns the registrations before it. In a dry run a new schema gets no id.
func register(ctx context.Context, client *registry.Client, files []schemaFile, dryRun bool) (done []registration, err error) {
	for _, f := range files {
		id, err := isRegistered(ctx, client, f)
		missing := id == 0
		if err != nil {
			return done, err
		}
		if dryRun {
			done = append(done, registration{File: f.path, Subject: f.subject, ID: id, New: missing})
			continue
		}
		s, err := f.schema(ctx, client, true)
		if err == nil {
			id, err = client.Register(ctx, f.subject, s)
		}
		if err != nil {
			return done, err
		}
		done = append(done, registration{File: f.path, Subject: f.subject, ID: id, New: missing})
	}
	return done, nil
}

func printRegistrations(cmd *cobra.Command, output format, done []registration) error {
	if output.forPrograms() {
		return output.encode(cmd.OutOrStdout(), append([]registration{}, done...))
	}
	for _, r := range done {
		word, id := "same", fmt.Sprintf(" id %d", r.ID)
		if r.New {
			word = "new"
		}
		if r.ID == 0 {
			id = ""
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-5s %s%s\n", word, r.Subject, id); err != nil {
			return err
		}
	}
	return nil
}
