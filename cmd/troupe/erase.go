package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/erasure"
)

func newErase() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:   "erase <key…>",
		Short: "Erase the data of a person from Troupe's tables, by the keys of the messages and sagas",
		Long: `erase deletes or blanks what Troupe's tables in the database of one service (--database-url or DATABASE_URL) hold of the messages and
sagas with the keys. A message or a saga of a key that has not ended is in the way: then nothing of any key is erased, and the output says
what to do. Run it for the database of each service and of each watcher, the ones with coordinators first.

It acts as the owner of the tables, since no other role may change the audit log; --dry-run needs the rights of a viewer. It records the
erasure with the SHA-256 of each key, and nothing of the data. docs/erasure.md lists the places that it cannot reach, such as Kafka, backups
and the service's own tables.

Exit status 1 if something is in the way.`,
		Example: `  troupe erase c-1001 --dry-run
  troupe erase c-1001 o-2001 --reason 'ticket 4711'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, keys []string) error {
			by, err := f.by(!f.dryRun)
			if err != nil {
				return err
			}
			pool, _, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			e := eraser{erasure.Desk{Pool: pool}, keys}
			planned, err := e.each(cmd.Context(), erasure.Desk.Plan)
			if err != nil {
				return failed(err)
			}
			blocked, rows := 0, int64(0)
			for _, r := range planned {
				if len(r.InTheWay) > 0 {
					blocked++
				}
				for _, c := range r.Changes {
					rows += c.Rows
				}
			}
			if f.dryRun || blocked > 0 {
				if f.output.forPrograms() {
					err = f.output.encode(cmd.OutOrStdout(), map[string]any{"done": false, "keys": planned})
				} else if err = printErasures(cmd.OutOrStdout(), planned); err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), "Nothing was erased.")
				}
				if err == nil && blocked > 0 {
					err = failed(fmt.Errorf("%d of %s: %w", blocked, counted(len(keys), "key", "keys"), erasure.ErrInTheWay))
				}
				return err
			}
			if err := f.confirm(cmd, fmt.Sprintf("erase %s of %s for good, as %s", counted(rows, "row", "rows"), counted(len(keys), "key", "keys"), by.Name)); err != nil {
				return err
			}
			done, err := e.each(cmd.Context(), func(d erasure.Desk, ctx context.Context, key string) (erasure.Report, error) {
				return d.Erase(ctx, key, by)
			})
			if err != nil {
				return failed(fmt.Errorf("%w (%d of %s were erased)", err, len(done), counted(len(keys), "key", "keys")))
			}
			if f.output.forPrograms() {
				return f.output.encode(cmd.OutOrStdout(), map[string]any{"done": true, "keys": done})
			}
			if err := printErasures(cmd.OutOrStdout(), done); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "Erased. Repeat it for each other database, and after this one is restored from a backup.")
			return err
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	f.declareAction(flags, "the data is erased; required unless --dry-run")
	f.declareYes(flags)
	return cmd
}

// An eraser erases the data of keys, one after the other.
type eraser struct {
	desk erasure.Desk
	keys []string
}

// each calls do for each key until one fails, and returns the reports of the ones before.
func (e eraser) each(ctx context.Context, do func(erasure.Desk, context.Context, string) (erasure.Report, error)) (all []erasure.Report, err error) {
	for _, key := range e.keys {
		r, err := do(e.desk, ctx, key)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// printErasures prints reports without the keys, so that the output can be kept.
func printErasures(w io.Writer, all []erasure.Report) error {
	for i, r := range all {
		before := ""
		if r.Before != nil {
			before = ", erased before at " + stamp(*r.Before)
		}
		_, _ = fmt.Fprintf(w, "Key %d of %d, SHA-256 %s%s\n", i+1, len(all), r.Digest, before)
		t := newTable(w, "TABLE", "ROWS", "EFFECT")
		for _, c := range r.Changes {
			t.row(c.Table, fmt.Sprint(c.Rows), c.Effect)
		}
		for _, o := range r.InTheWay {
			t.row(o.Table, fmt.Sprint(o.Rows), "in the way: "+o.Remedy)
		}
		if len(r.Changes)+len(r.InTheWay) == 0 {
			t.row("none", "0", "")
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}
