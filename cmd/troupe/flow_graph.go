package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/flow/graph"
)

func newFlowGraph() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "graph [flags] FILE…",
		Short: "Draw a flow",
		Long: `graph draws services and the messages between them: mermaid prints a flowchart for pages that render Mermaid, svg a
self-contained picture. Failures are dotted or dashed, compensations thick or brown. It draws declarations with errors, too.`,
		Example: `  troupe flow graph services/*/reactions.json
  troupe flow graph --output svg services > flow.svg`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			draw := graph.Mermaid
			switch output {
			case "mermaid":
			case "svg":
				draw = graph.SVG
			default:
				return fmt.Errorf("--output %q: want mermaid or svg", output)
			}
			services, err := loadReactions(paths)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), draw(services)); err != nil {
				return failed(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&output, "output", "mermaid", "format of the drawing: `mermaid|svg`")
	return cmd
}
