package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
)

// difference holds the changes of one record since its latest earlier version.
type difference struct {
	File    string           `json:"file"`
	Subject string           `json:"subject"`
	Since   string           `json:"since"` // empty if there is no earlier version
	Changes []payload.Change `json:"changes"`
}

func newSchemaDiff() *cobra.Command {
	var (
		from   earlier
		output format
	)
	cmd := &cobra.Command{
		Use:   "diff [flags] FILE|FOLDER…",
		Short: "Describe the changes of schemas in words",
		Long: `diff compares each schema with the latest earlier version of the same type, field by field. Layout and custom properties do not
count. The exit status is 0 with and without differences.`,
		Example: `  troupe schema diff --against git:origin/main schemas/
  troupe schema diff --against old.avsc new.avsc
  troupe schema diff --registry http://localhost:8081 --output json schemas/`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := from.wrong(); err != nil {
				return err
			}
			files, err := readFiles(paths)
			if err != nil {
				return failed(err)
			}
			h, err := from.open(cmd.Context(), paths)
			if err != nil {
				return failed(err)
			}
			differences := make([]difference, 0, len(files))
			for _, f := range files {
				d, err := differenceOf(cmd.Context(), f, h)
				if err != nil {
					return failed(err)
				}
				differences = append(differences, d)
			}
			return failed(printDifferences(cmd, output, differences))
		},
	}
	cmd.Flags().SortFlags = false
	from.declare(cmd.Flags())
	output.declare(cmd)
	return cmd
}

func differenceOf(ctx context.Context, f schemaFile, h history) (difference, error) {
	d := difference{File: f.path, Subject: f.subject, Changes: []payload.Change{}}
	label, last, err := h.latest(ctx, f)
	if err != nil || label == "" {
		return d, err
	}
	d.Since = label
	if f.format != nil {
		changes, err := f.format.Diff(f.subject, last, payload.SourceOf(f.files))
		d.Changes = append(d.Changes, changes...)
		return d, err
	}
	changes, err := avsc.Diff(avsc.Version{Label: label, Avsc: last.Text}, avsc.Version{Label: f.path, Avsc: f.avsc()})
	for _, c := range changes {
		d.Changes = append(d.Changes, payload.Change(c))
	}
	return d, err
}

func printDifferences(cmd *cobra.Command, output format, differences []difference) error {
	if output.forPrograms() {
		return output.encode(cmd.OutOrStdout(), differences)
	}
	for _, d := range differences {
		headline := fmt.Sprintf("%s since %s", d.Subject, d.Since)
		switch {
		case d.Since == "":
			headline = d.Subject + ": new"
		case len(d.Changes) == 0:
			headline += ": unchanged"
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), oneLine(headline, len(headline))); err != nil {
			return err
		}
		for _, c := range d.Changes {
			change := avsc.Change(c).String()
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), "  "+oneLine(change, len(change))); err != nil {
				return err
			}
		}
	}
	return nil
}
