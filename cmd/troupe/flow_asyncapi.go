package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/flow/asyncapi"
)

func newFlowAsyncAPI() *cobra.Command {
	var version, folder string
	cmd := &cobra.Command{
		Use:   "asyncapi [flags] FILE…",
		Short: "Print AsyncAPI documents of services",
		Long: `asyncapi prints an AsyncAPI 3.0 document, as JSON, with the messages that a service receives and sends, for catalogues and code
generators. For several services use --folder: each gets a file <flow.hop>.asyncapi.json.`,
		Example: `  troupe flow asyncapi services/payment/reactions.json > payment.asyncapi.json
  troupe flow asyncapi --folder docs/api --version 2.1.0 services`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			services, err := loadReactions(paths)
			if err != nil {
				return err
			}
			if folder == "" && len(services) > 1 {
				return fmt.Errorf("%d services: name one, or a --folder for their files", len(services))
			}
			for _, s := range services {
				text, err := asyncapi.Document(s, version)
				if err != nil {
					return failed(err)
				}
				if folder == "" {
					_, err = cmd.OutOrStdout().Write(text)
				} else {
					err = writeIfOther(filepath.Join(folder, s.Hop+".asyncapi.json"), text)
				}
				if err != nil {
					return failed(err)
				}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&folder, "folder", "", "existing `folder` for a file of each service")
	cmd.Flags().StringVar(&version, "version", "1.0.0", "version of the services' contracts")
	return cmd
}

// writeIfOther does not write a file that has the same text already, so that its modification time is the time of its last
// change.
func writeIfOther(path string, text []byte) error {
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
