package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/schemas"
)

// consoleFlags holds the command-line flags of a console.
type consoleFlags struct {
	traceFlags
	listen    string
	tokenFile string
	hosts     []string
	file      string
	watch     string
	https     bool
	access    *console.Access // of the file
}

const consoleAddress = "127.0.0.1:8090"

func newConsole() *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve web pages to inspect and repair flows",
		Long: `console serves the pages of docs/console.md over the given databases: sagas, dead letters, held keys,
messages, outboxes and definitions. It reads committed data, and stores nothing.

Without a token the pages are read-only. With one (TROUPE_CONSOLE_TOKEN, or --token-file), operators sign in
with it to act, and each action is recorded with their name and reason. If the address is not a loopback one,
or --host or --https is set for a proxy, a token is required, for reading, too.

--config names a file for several databases. The URLs and the token are in it, or in a file or a variable
that it names:

  databases:
    order: {file: /run/secrets/order-database}
    payment: {env: PAYMENT_DATABASE_URL}
  brokers: broker-1:9092,broker-2:9092
  flow: order
  token: {file: /run/secrets/console}

Instead of the token it may list users with a role on each database: viewer (no payloads), operator
(retry, redrive, pause) or admin (also discard, abandon, edit). A user has a token, or an authenticating
proxy names the user in a header:

  users:
    ann: {token: {file: /run/secrets/ann}, roles: {"*": operator, payment: admin}}
  groups:
    support: {"*": viewer}
  proxy: {from: [10.1.2.3], secret: {file: /run/secrets/proxy}, user: X-Forwarded-User, groups: X-Forwarded-Groups}

SIGHUP makes a console with --token-file or --config read the token, or the users, again, and the address of the schema
registry. Sessions that a removed token began end. Other settings need a restart.

Exit status: 0 it was asked to stop, 1 it cannot go on, 2 wrong usage.`,
		Example: `  troupe console --database order=postgres://localhost/order --database payment=postgres://localhost/payment
  troupe console --brokers localhost:9092 --flow order --registry http://localhost:8081 --token-file /run/secrets/console
  troupe console --config /etc/troupe/console.yaml
  troupe demo --keep && troupe console --demo /tmp/troupe-demo-2029050850`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.databases, "database", nil, "`name=URL` of a service's database, repeatable; better in the environment, since others can see a command line [TROUPE_DATABASES, with blanks between]")
	flags.StringVar(&f.brokers, "brokers", "", "`host:port,...` of brokers, to find messages that were published [KAFKA_BROKERS, if --flow is set]")
	flags.StringVar(&f.cfg.Flow, "flow", "", "`name` of the flow, the first part of its topics and groups [TROUPE_FLOW]")
	flags.StringVar(&f.registry, "registry", "", "`URL` of the schema registry, to show and write payloads with a schema as JSON [SCHEMA_REGISTRY_URL]")
	flags.StringVar(&f.demo, "demo", "", "`folder` of a troupe demo --keep, to look at its data")
	flags.StringVar(&f.watch, "watch", "", "`URL` of the database that troupe watch keeps, to show choreographed flows [TROUPE_WATCH_DATABASE]")
	flags.StringVar(&f.listen, "listen", consoleAddress, "`host:port` to serve on")
	flags.StringSliceVar(&f.hosts, "host", nil, "host `name` in the console's URL, besides localhost, repeatable; on loopback requests with another name are refused")
	flags.BoolVar(&f.https, "https", false, "browsers reach it by https, through a proxy that ends TLS: cookies are sent by https only")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the token to sign in with, at least 16 bytes [TROUPE_CONSOLE_TOKEN holds the token itself]")
	flags.StringVar(&f.file, "config", "", "`file.yaml` with databases, brokers, flow, registry, listen, hosts, https, and token or users; flags and the environment override it")
	f.application, f.connections = "troupe console", 8
	f.cfg.Since, f.cfg.Timeout, f.cfg.MaxRecords = 24*time.Hour, 10*time.Second, 1_000_000
	return cmd
}

// token returns the token of the file, or of the environment; "": none.
func (f *consoleFlags) token() (string, error) {
	if f.tokenFile == "" {
		return os.Getenv("TROUPE_CONSOLE_TOKEN"), nil
	}
	if strings.ContainsAny(f.tokenFile, "\r\n") {
		return "", errors.New("--token-file: several lines (not shown): want the path of a file")
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", fmt.Errorf("--token-file: %s is empty", f.tokenFile)
	}
	return strings.TrimSpace(string(text)), nil
}

// read takes the settings of the file, and returns the token; "": none. f.access has the users.
func (f *consoleFlags) read(listenIsSet bool) (token string, err error) {
	var filed string
	if f.file != "" {
		c, err := readConsoleFile(f.file)
		if err != nil {
			return "", err
		}
		if filed, err = f.take(c, listenIsSet); err != nil {
			return "", err
		}
	}
	token, err = f.token()
	return cmp.Or(token, filed), err
}

func (f *consoleFlags) run(cmd *cobra.Command) error {
	flags := *f // before the file is read
	token, err := f.read(cmd.Flags().Changed("listen"))
	if err != nil {
		return err
	}
	hasRegistry := f.registryAddress() != "" // before the demo sets its own
	if err := address.CheckListen(f.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	local := isLocal(f.listen)
	proxied := len(f.hosts) > 0 || f.https // browsers reach it under another name, or by https: through a proxy, which others reach, too
	if token != "" && f.access != nil {
		return errors.New("a token for all, and users with roles in --config: want one of both (TROUPE_CONSOLE_TOKEN, --token-file and the file's token are the former)")
	}
	if !local && token == "" && f.access == nil {
		return fmt.Errorf("--listen %s: others than this machine could read it: want a token, by --token-file or TROUPE_CONSOLE_TOKEN, or users in --config", f.listen)
	}
	if proxied && token == "" && f.access == nil {
		return errors.New("--host or --https: others than this machine could read it through the proxy: set a token with --token-file or TROUPE_CONSOLE_TOKEN, or list users in --config")
	}
	end, err := f.openDemo(cmd.Context())
	if err != nil {
		return failed(err)
	}
	defer end()
	looked, err := f.config(cmd.Context())
	defer func() {
		for _, d := range looked.Databases {
			d.Pool.Close()
		}
	}()
	if err != nil {
		return err
	}
	cfg := console.Config{
		Brokers: looked.Brokers, Kafka: looked.Kafka, Flow: looked.Flow, Registry: looked.Registry, Token: token, Access: f.access, Private: !local || proxied, HTTPS: f.https,
		Log: zerolog.New(plain.Log(cmd.ErrOrStderr())).With().Timestamp().Logger(),
	}
	if len(looked.Brokers) == 0 {
		cfg.Flow = ""
	}
	if local || len(f.hosts) > 0 {
		cfg.Hosts = append([]string{"localhost"}, f.hosts...)
	}
	for _, d := range looked.Databases {
		cfg.Databases = append(cfg.Databases, console.Database(d))
	}
	if cfg.Watch, err = watched(f.watch).open(cmd.Context()); err != nil {
		return err
	}
	if cfg.Watch != nil {
		defer cfg.Watch.Close()
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return failed(fmt.Errorf("--listen: %w", err))
	}
	hangUp := make(chan os.Signal, 1)
	if f.file != "" || f.tokenFile != "" { // else there is nothing to read again, and it ends with its terminal
		signal.Notify(hangUp, syscall.SIGHUP)
		defer signal.Stop(hangUp)
	}
	return serveConsole(cmd.Context(), l, cfg, cmd.ErrOrStderr(), hangUp, func(c *console.Console) error {
		again := flags
		token, err := again.read(true)
		if err != nil {
			return err
		}
		next := again.registryAddress()
		if (next != "") != hasRegistry {
			return errors.New("registry: it cannot be added or removed without a restart")
		}
		if next == "" {
			return c.ReplaceAccess(token, again.access)
		}
		if _, err := schemas.NewRegistry(next); err != nil { // before anything is replaced
			return err
		}
		if err := c.ReplaceAccess(token, again.access); err != nil {
			return err
		}
		return cfg.Registry.Replace(next)
	})
}

// isLocal reports whether only this machine can reach an address.
func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (f *consoleFlags) registryAddress() string {
	return cmp.Or(f.registry, os.Getenv("SCHEMA_REGISTRY_URL"))
}

// serveConsole serves on l until ctx ends, and closes it. At each hang-up it calls again, which reads the secrets again.
func serveConsole(ctx context.Context, l net.Listener, cfg console.Config, stderr io.Writer, hangUp <-chan os.Signal, again func(*console.Console) error) error {
	c, err := console.New(ctx, cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer c.Close()
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	server.RegisterOnShutdown(c.Close) // else the shutdown would wait for live pages
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(door.Limit(l)) }()
	_, _ = fmt.Fprintf(stderr, "console: http://%s/%s\n", l.Addr(), cmp.Or(map[bool]string{true: " (read only: no token)"}[cfg.Token == "" && cfg.Access == nil], ""))
	for serves := true; serves; {
		select {
		case err := <-ended:
			return failed(err)
		case <-ctx.Done():
			serves = false
		case <-hangUp:
			if err := again(c); err != nil {
				cfg.Log.Error().Err(err).Msg("the token, the users and the address of the registry were not read again: the earlier ones stay")
			} else {
				cfg.Log.Info().Msg("the token, the users and the address of the registry were read again; sessions of removed tokens have ended")
			}
		}
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return failed(err)
	}
	return nil
}

// besideDemo returns a function that serves a console over a demo's services. It generates a token, and prints it.
func besideDemo(listen string, stderr io.Writer) (func(context.Context, run.World) error, error) {
	if err := address.CheckListen(listen); err != nil {
		return nil, fmt.Errorf("--console: %w", err)
	}
	if !isLocal(listen) {
		return nil, fmt.Errorf("--console=%s: want an address of this machine's own, such as %s", listen, consoleAddress)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, failed(fmt.Errorf("--console: %w", err))
	}
	token := rand.Text()
	return func(ctx context.Context, w run.World) (err error) {
		cfg := console.Config{Brokers: w.Brokers, Flow: w.Flow, Token: token, Hosts: []string{"localhost"}, Log: zerolog.New(io.Discard)}
		if cfg.Registry, err = schemas.NewRegistry(w.Registry); err != nil {
			return errors.Join(err, l.Close())
		}
		opener := traceFlags{application: "troupe console", connections: 4}
		for _, name := range slices.Sorted(maps.Keys(w.Databases)) {
			d, err := opener.open(ctx, name+"="+w.Databases[name])
			if err != nil {
				return errors.Join(err, l.Close())
			}
			defer d.Pool.Close()
			cfg.Databases = append(cfg.Databases, console.Database(d))
		}
		pool, end, err := watchDemo(ctx, w)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		cfg.Watch = pool
		defer func() { err = errors.Join(err, end()) }()
		_, _ = fmt.Fprintf(stderr, "to act, sign in with the token %s\n", token)
		return serveConsole(ctx, l, cfg, stderr, nil, nil)
	}, nil
}
