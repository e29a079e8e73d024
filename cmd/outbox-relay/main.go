// Command outbox-relay publishes the rows of a service's outbox to Kafka. See outbox-relay --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/sidecar"
)

func main() {
	plain.StandardLog(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := sidecar.Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr}.Main(ctx)
	stop()
	os.Exit(code)
}
