package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/schemas"
)

// deskFlags holds the flags for the database and, for actions, the actor and the reason.
type deskFlags struct {
	database string
	registry string
	actor    string
	reason   string
	yes      bool
	dryRun   bool
	output   format
}

func (f *deskFlags) declare(cmd *cobra.Command) {
	f.declareDatabase(cmd.Flags())
	f.output.declare(cmd)
}

func (f *deskFlags) declareDatabase(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.database, "database-url", "", "`URL` of the service's database, or its name in TROUPE_DATABASES; better in the environment, since others can see a command line [DATABASE_URL, else the only one of TROUPE_DATABASES]")
}

func (f *deskFlags) declareRegistry(flags *pflag.FlagSet) {
	flags.StringVar(&f.registry, "registry", "", "`URL` of the schema registry, to show and write payloads with a schema as JSON [SCHEMA_REGISTRY_URL]")
}

func (f *deskFlags) declareAction(flags *pflag.FlagSet, why string) {
	flags.StringVar(&f.actor, "actor", "", "operator's `name`, for the record (default: the operating system's user)")
	flags.StringVar(&f.reason, "reason", "", "`text` for the record: why "+why)
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be done, and do nothing")
}

func (f *deskFlags) declareYes(flags *pflag.FlagSet) {
	flags.BoolVar(&f.yes, "yes", false, "do it without asking")
}

// by returns the actor, by default the operating system's user, and the reason.
func (f *deskFlags) by(reason bool) (admin.Actor, error) {
	by, check := admin.Actor{Name: f.actor, Reason: f.reason}, admin.Actor.Check
	if reason {
		check = admin.Actor.CheckReasoned
	}
	if by.Name == "" {
		if self, err := user.Current(); err == nil {
			by.Name = self.Username
		}
	}
	if err := check(by); err != nil {
		return by, fmt.Errorf("--%w", err)
	}
	return by, nil
}

// open opens the desk for a command. It connects at the first query.
func (f *deskFlags) open(ctx context.Context) (desk *repair.Desk, end func(), err error) {
	pool, codec, err := f.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	cfg := repair.Config{Pool: pool}
	if codec != nil {
		cfg.Codec = codec
	}
	if desk, err = repair.New(cfg); err != nil {
		pool.Close()
		return nil, nil, failed(err)
	}
	return desk, pool.Close, nil
}

// withDesk opens a desk, calls do with it, and closes it.
func withDesk[D any](cmd *cobra.Command, open func(context.Context) (D, func(), error), do func(D) error) error {
	desk, end, err := open(cmd.Context())
	if err != nil {
		return err
	}
	defer end()
	return do(desk)
}

// connect returns the database's pool and, if a registry is named, the codec for Avro.
func (f *deskFlags) connect(ctx context.Context) (*pgxpool.Pool, *schemas.Codec, error) {
	var err error
	if f.database, err = databaseURL(f.database); err != nil {
		return nil, nil, err
	}
	config, err := address.ParsePool(f.database)
	if err != nil {
		return nil, nil, fmt.Errorf("--database-url or DATABASE_URL: %w", err)
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, 10*time.Second)
	f.registry = cmp.Or(f.registry, os.Getenv("SCHEMA_REGISTRY_URL"))
	var codec *schemas.Codec
	if f.registry != "" {
		registry, err := schemas.NewRegistry(f.registry)
		if err != nil {
			return nil, nil, fmt.Errorf("--registry: %w", err)
		}
		if codec, err = schemas.New(ctx, schemas.Config{Registry: registry, Formats: formats.All()}); err != nil {
			return nil, nil, failed(err)
		}
	}
	pool, err := newPool(ctx, config, cmp.Or(config.ConnConfig.RuntimeParams["application_name"], "troupe"), 2)
	return pool, codec, err
}

// newPool returns a pool with the client certificate of the settings. It connects at the first query.
func newPool(ctx context.Context, config *pgxpool.Config, application string, connections int32) (*pgxpool.Pool, error) {
	if err := identify(config); err != nil {
		return nil, err
	}
	config.MaxConns = connections
	address.OwnNames(&config.ConnConfig.Config)
	config.ConnConfig.RuntimeParams["application_name"] = application
	return pgxpool.NewWithConfig(ctx, config)
}

// agree reports whether the action may be done. A dry run prints it; otherwise the user confirms it.
func (f *deskFlags) agree(cmd *cobra.Command, action string, by admin.Actor) (bool, error) {
	if f.dryRun {
		return false, f.wouldDo(cmd, action)
	}
	return true, f.confirm(cmd, action+", as "+by.Name)
}

// confirm asks the user before an action is done.
func (f *deskFlags) confirm(cmd *cobra.Command, what string) error {
	if f.yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return fmt.Errorf("it would %s: there is no terminal for the confirmation; use --yes", what)
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "This will %s. Go on? [y/N] ", what)
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the end of the input without an answer is a no
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-cmd.Context().Done():
	}
	return failed(errors.New("nothing was done"))
}

// momentVar declares a flag for a point in time: RFC 3339, or a duration before now.
func momentVar(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	flags.Func(name, usage, func(text string) (err error) {
		if *at, err = time.Parse(time.RFC3339Nano, text); err == nil {
			return nil
		}
		ago, err := time.ParseDuration(text)
		if err != nil || ago <= 0 {
			return errors.New("want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h30m")
		}
		*at = time.Now().Add(-ago)
		return nil
	})
}

// oneLine returns text from outside without control characters, which a terminal would execute, cut to width characters.
func oneLine(text string, width int) string { return plain.Line(text, width) }

// linesTo returns a function that writes lines to w, each with a name in a column of that width. A value may come from a message, or from
// a row that others write: control characters are not printed.
func linesTo(w io.Writer, width int) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		_, _ = fmt.Fprintf(w, "%-*s%s\n", width, name, oneLine(text, len(text)))
	}
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05Z") }

func counted[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// more prints how to list the next page.
func more(w io.Writer, next string) {
	if next != "" {
		_, _ = fmt.Fprintf(w, "There are more: --after %s\n", next)
	}
}
