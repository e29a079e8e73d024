// Command fetchpostgres prints the folder with the programs of a version of Postgres, which it fetches on first use.
//
//	PATH=$(go run ./internal/devstack/fetchpostgres 16.9.0):$PATH go test -count=1 ./outbox
//
// Tests start the Postgres that is first on PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/troupe-go/troupe/internal/devstack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fetchpostgres:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("name one version, such as 16.9.0")
	}
	bin, err := devstack.FetchPostgres(ctx, args[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, bin)
	return err
}
