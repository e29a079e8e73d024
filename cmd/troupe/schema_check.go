package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/avsc"
)

func newSchemaCheck() *cobra.Command {
	var (
		from   earlier
		level  avsc.Level
		output format
	)
	cmd := &cobra.Command{
		Use:   "check [flags] FILE|FOLDER…",
		Short: "Check that schemas are compatible with their earlier versions",
		Long: `check compares each schema with the earlier versions of the same type, and prints for every incompatible field of an Avro schema the
reason and the remedy, and for other formats the reasons of the registry. It changes nothing. The exit status is 1 if a schema is incompatible.`,
		Example: `  troupe schema check --against git:origin/main schemas/
  troupe schema check --against v1/ --against v2/ --level FULL_TRANSITIVE v3/
  troupe schema check --registry http://localhost:8081 --output json schemas/order/PaymentCharged.avsc`,
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
			verdicts := make([]verdict, 0, len(files))
			ok := true
			for _, f := range files {
				v, _, err := judge(cmd.Context(), f, h, level)
				if err != nil {
					return failed(err)
				}
				ok = ok && v.OK
				verdicts = append(verdicts, v)
			}
			if err := printVerdicts(cmd, output, verdicts); err != nil {
				return failed(err)
			}
			if !ok {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	from.declare(cmd.Flags())
	levelVar(cmd.Flags(), &level, "FULL_TRANSITIVE with --against, the registry's with --registry")
	output.declare(cmd)
	return cmd
}

func printVerdicts(cmd *cobra.Command, output format, verdicts []verdict) error {
	if output.forPrograms() {
		return output.encode(cmd.OutOrStdout(), verdicts)
	}
	for _, v := range verdicts {
		for _, line := range v.lines() {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), oneLine(line, len(line))); err != nil {
				return err
			}
		}
	}
	return nil
}
