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
		Long: `graph draws services and the messages between them: mermaid is a flowchart for pages that know Mermaid, svg a picture
that needs nothing else. Failures are dotted or dashed, what undoes is thick or brown. It draws what is declared, sound or not.`,
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
	cmd.Flags().StringVar(&output, "output", "mermaid", "what is drawn: `mermaid|svg`")
	return cmd
}
