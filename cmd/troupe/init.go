package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/scaffold"
	"github.com/troupe-go/troupe/topics"
)

func newInit() *cobra.Command {
	var service scaffold.Service
	var hop, from string
	var dryRun bool
	var output format
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a new service: a handler, its tests, and a compose file",
		Long: `init writes a service into a folder that is new or empty: a program with one handler, its tests, which start a Postgres and a
broker, a compose file with Postgres, Kafka and the relay, and a README with the commands. Messages, tables and topics are named
after the hop. With --reacts-to the handler reacts to another hop's event. A service that does both is made with its command; then
register React next to Handle, as docs/start.md says under "Make it yours".

The handler uses pgx and JSON, unless --database-sql, --sqlc or --proto say otherwise; you can combine them. With --avro and --proto
the other hop's event is Avro, and the service's own messages are Protobuf. The code of sqlc and protoc is written too, so neither has
to be installed.

You can commit the go.mod: the path of Troupe's source on this machine is in go.work, which git ignores. Before Troupe's first
release, go get and go mod tidy need that path in go.mod; --replace writes it there.`,
		Example: `  troupe init seats
  troupe init tickets --hop booking.tickets --reacts-to booking.seats
  troupe init services/payment --hop order.payment --module example.org/payment --sqlc --database-sql --proto
  troupe init points --hop order.points --reacts-to order.payment --avro internal/demo/messages/PaymentCharged.avsc
  cd seats && go test ./...`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := filepath.Abs(args[0])
			if err != nil {
				return failed(err)
			}
			service.Name = filepath.Base(folder)
			if service.Hop, err = topics.ParseHop(cmp.Or(hop, "booking."+service.Name)); err != nil && hop != "" {
				return fmt.Errorf("--hop: %w", err)
			} // without a hop the name is invalid: Files reports it
			if from != "" {
				if service.From, err = topics.ParseHop(from); err != nil {
					return fmt.Errorf("--reacts-to: %w", err)
				}
			}
			if service.Troupe, err = checkout(service.Troupe); err != nil {
				return err
			}
			service.Path = pathFrom(folder, service.Troupe)
			if service.Module == "" {
				service.Module = service.Name
			}
			files, err := service.Files()
			if err != nil {
				return err
			}
			if !dryRun {
				if err := scaffold.Write(folder, files); err != nil {
					return failed(err)
				}
			}
			if output.forPrograms() {
				paths := make([]string, len(files))
				for i, f := range files {
					paths[i] = filepath.Join(folder, f.Path)
				}
				return output.encode(cmd.OutOrStdout(), map[string]any{"done": !dryRun, "files": paths})
			}
			return printInit(cmd.OutOrStdout(), args[0], files, dryRun)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&hop, "hop", "", "`flow.hop`: the service's part of a flow (default: booking and the folder's name)")
	flags.StringVar(&from, "reacts-to", "", "`flow.hop` of the same flow whose events it reacts to, instead of commands (default: it handles commands)")
	flags.StringVar(&service.Event, "event", "", "`type` of that event (default: the type that a service made by troupe init for that hop emits)")
	flags.StringVar(&service.AvroFile, "avro", "", "`file.avsc` with the schema of that event, if it is Avro with a schema registry")
	flags.BoolVar(&service.SQL, "database-sql", false, "handlers get a *sql.Tx instead of a pgx.Tx")
	flags.BoolVar(&service.Sqlc, "sqlc", false, "queries in SQL files, with Go code that sqlc generates")
	flags.BoolVar(&service.Proto, "proto", false, "messages in Protobuf with a schema registry, instead of JSON")
	flags.StringVar(&service.Module, "module", "", "`path` of its Go module (default: the folder's name)")
	flags.StringVar(&service.Troupe, "troupe", "", "`folder` with a checkout of Troupe (default: the checkout from which this program was built)")
	flags.BoolVar(&service.Replace, "replace", false, "write the path of that checkout into go.mod instead of go.work")
	flags.BoolVar(&dryRun, "dry-run", false, "list the files, and write none")
	output.declare(cmd)
	_ = cmd.MarkFlagDirname("troupe") // it fails only for an unknown flag
	return cmd
}

func printInit(w io.Writer, folder string, files []scaffold.File, dryRun bool) error {
	word := "Made"
	if dryRun {
		word = "Would make"
	}
	_, _ = fmt.Fprintf(w, "%s %s:\n", word, folder)
	for _, f := range files {
		_, _ = fmt.Fprintf(w, "  %s\n", f.Path)
	}
	if dryRun {
		_, err := fmt.Fprintln(w, "Nothing was done.")
		return err
	}
	_, err := fmt.Fprintf(w, "\nNext: cd %s && go test ./...; README.md has the rest.\n", plain.Argument(folder))
	return err
}

// pathFrom returns the path of a checkout as seen from the service's folder, whose parent need not exist yet. It returns the checkout
// itself if there is no such path.
func pathFrom(folder, checkout string) string {
	parent := filepath.Dir(folder)
	for {
		real, err := filepath.EvalSymlinks(parent)
		if err == nil {
			rest, _ := filepath.Rel(parent, folder)
			folder = filepath.Join(real, rest)
			break
		}
		if parent == filepath.Dir(parent) {
			return checkout
		}
		parent = filepath.Dir(parent)
	}
	real, err := filepath.EvalSymlinks(checkout)
	if err != nil {
		return checkout
	}
	path, err := filepath.Rel(folder, real)
	if err != nil || !strings.HasPrefix(path, "..") {
		return checkout
	}
	return filepath.ToSlash(path)
}

// checkout returns the folder of Troupe's source: named, else the one from which this program was built.
func checkout(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	_, source, _, _ := runtime.Caller(0)
	folder := filepath.Dir(filepath.Dir(filepath.Dir(source)))
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err != nil || !filepath.IsAbs(folder) {
		return "", fmt.Errorf("--troupe is not set, and the checkout from which this program was built is not on this machine: clone Troupe and name its folder")
	}
	return folder, nil
}
