package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/saga"
)

func newSagaFmt() *cobra.Command {
	var write, check bool
	cmd := &cobra.Command{
		Use:   "fmt [flags] FILE…",
		Short: "Print definitions in their canonical form",
		Long: `fmt prints definitions in their canonical form, from which the hash is computed: fields in the order of the schema, names sorted,
two spaces of indent. --write changes the files instead; --check only lists the files that it would change.

Exit status: 0 done, 1 a file is no definition, or with --check one would change, 2 a file cannot be read.`,
		Example: `  troupe saga fmt order.saga.json
  troupe saga fmt --write *.saga.json
  troupe saga fmt --check *.saga.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			if write && check {
				return fmt.Errorf("--write with --check: use one or the other")
			}
			same := true
			for _, path := range paths {
				text, err := readSaga(path)
				if err != nil {
					return err
				}
				d, err := saga.Parse(text)
				if err != nil {
					return failed(fmt.Errorf("%s: %w", path, err))
				}
				differs := !bytes.Equal(text, d.JSON())
				same = same && !differs
				switch {
				case check && differs:
					_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
				case write && differs:
					err = rewrite(path, d.JSON())
				case !check && !write:
					_, err = cmd.OutOrStdout().Write(d.JSON())
				}
				if err != nil {
					return failed(err)
				}
			}
			if check && !same {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&write, "write", "w", false, "change the files")
	cmd.Flags().BoolVar(&check, "check", false, "list the files that would change, and change none")
	return cmd
}

// rewrite replaces a file atomically: a concurrent reader gets the old text or the new one.
func rewrite(path string, text []byte) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	next := path + ".new"
	if err := os.WriteFile(next, text, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
