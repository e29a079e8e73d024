package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

// maxReactionsFile bounds the bytes read of a file. It is above the limit of a file, so that a larger one is refused and not cut.
const maxReactionsFile = 1<<20 + 1

// maxServices bounds the files of a flow.
const maxServices = 1000

func newFlow() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "flow",
		Short: "Verify, draw, compare and publish flows without an orchestrator",
		Long: `flow reads the declarations of services: each keeps a reactions.json with its code, which lists the messages that it reacts
to and the messages that it then sends. Together they describe the flow. The commands run nothing and change nothing.

FILE is a service's file. For a folder, all files reactions.json and *.reactions.json in it and its subfolders are read.`,
		Example: `  troupe flow verify services/*/reactions.json
  troupe flow graph --output svg services > flow.svg
  troupe flow diff main/services services
  troupe flow asyncapi services/payment/reactions.json`,
	}, newFlowVerify(), newFlowGraph(), newFlowDiff(), newFlowAsyncAPI(), newFlowSchema())
}

// readReactions reads the files of paths, which may be files or folders, in order.
func readReactions(paths []string) ([]verify.File, error) {
	var files []verify.File
	for _, path := range paths {
		names := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			if names, err = reactionsIn(path); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			if slices.ContainsFunc(files, func(f verify.File) bool { return f.Name == name }) {
				continue
			}
			text, err := readUpTo(name, maxReactionsFile)
			if err != nil {
				return nil, err
			}
			files = append(files, verify.File{Name: name, Text: text})
		}
	}
	if len(files) > maxServices {
		return nil, fmt.Errorf("%d files: a flow has at most %d services", len(files), maxServices)
	}
	return files, nil
}

func reactionsIn(folder string) (names []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !d.IsDir() && (name == "reactions.json" || strings.HasSuffix(name, ".reactions.json")) {
			names = append(names, path)
		}
		return err
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: it holds no reactions.json: name the files", folder)
	}
	return names, err
}

// loadReactions reads services and does not verify their flow. An error in a file has its line.
func loadReactions(paths []string) ([]flow.Declaration, error) {
	files, err := readReactions(paths)
	if err != nil {
		return nil, err
	}
	var services []flow.Declaration
	for _, f := range files {
		s, err := flow.Parse(f.Text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		services = append(services, s)
	}
	return services, nil
}

func newFlowSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of reactions.json",
		Long: `schema prints the JSON Schema (draft 2020-12) of files reactions.json, for editors and for validators of other
languages. docs/flow-reference.md describes the same fields.`,
		Example: "  troupe flow schema > reactions.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(flow.Schema())
			return err
		},
	}
}
