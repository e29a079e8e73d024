package run

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/sidecar"
)

// ChildCommand is the program's argument that makes it a child process: the program passes the arguments after it to Child.
const ChildCommand = "demo-child"

// Variables of a child, in addition to the settings of services and relays.
const (
	envProxy = "TROUPE_DEMO_PROXY" // token and address of the proxy, see dialThrough
	envChild = "TROUPE_DEMO_CHILD" // the child's name in the proxy
)

var runs = map[string]demo.Service{"order": order.Run, "payment": payment.Run, "inventory": inventory.Run, "shipping": shipping.Run}

// Child runs a child process, "service NAME" or "relay", and returns its exit status. Its settings come from the environment.
func Child(ctx context.Context, args []string, stderr io.Writer) int {
	dial, err := childDialer()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, ChildCommand+":", err)
		return 2
	}
	switch {
	case len(args) == 2 && args[0] == "service" && runs[args[1]] != nil:
		if err := runService(ctx, args[1], dial, stderr); err != nil {
			_, _ = fmt.Fprintln(stderr, ChildCommand+":", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "relay":
		relay := sidecar.Program{Args: []string{"run"}, Stdout: stderr, Stderr: stderr}
		if dial != nil {
			relay.Dial = pgconn.DialFunc(dial)
			relay.Kafka = []kgo.Opt{kgo.Dialer(dial)}
		}
		return relay.Main(ctx)
	}
	_, _ = fmt.Fprintf(stderr, "%s: want service %s, or relay\n", ChildCommand, strings.Join(services, "|"))
	return 2
}

func runService(ctx context.Context, name string, dial dialer, stderr io.Writer) error {
	cfg, err := demo.FromEnv()
	if err != nil {
		return err
	}
	cfg.Log = zerolog.New(plain.Log(stderr)).With().Timestamp().Str("service", name).Int("pid", os.Getpid()).Logger()
	if dial != nil {
		cfg.Dial = pgconn.DialFunc(dial)
		// A static member that was killed resumes its partitions as soon as it is back. A dynamic one would be a new member each
		// time, and the group would wait a session time-out for the killed one: ten seconds a kill.
		cfg.Kafka = []kgo.Opt{kgo.Dialer(dial), kgo.InstanceID(name)}
	}
	return runs[name](ctx, cfg)
}

// childDialer returns nil if the child connects directly.
func childDialer() (dialer, error) {
	credentials := os.Getenv(envProxy)
	if credentials == "" {
		return nil, nil
	}
	dial, err := dialThrough(credentials, os.Getenv(envChild))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envProxy, err)
	}
	return dial, nil
}

// settings holds the settings that all children of a run share.
type settings struct {
	brokers, registry, flow string
	style                   demo.Style
	fail                    demo.Fail
	seed                    int64
	credentials             string // token and address of the proxy; "": none
}

// environment returns a child's environment: this process's without the settings that services and relays read, so that settings
// of other programs do not affect the run, and then the settings of this run.
func (s settings) environment(service, child, databaseURL, listen string) []string {
	set := map[string]string{
		"DATABASE_URL":         databaseURL,
		"KAFKA_BROKERS":        s.brokers,
		"SCHEMA_REGISTRY_URL":  s.registry,
		"DEMO_FLOW":            s.flow,
		"DEMO_STYLE":           string(s.style),
		"DEMO_LISTEN":          listen,
		"DEMO_FAIL":            s.fail.String(),
		"DEMO_SEED":            strconv.FormatInt(s.seed, 10),
		"OUTBOX_RELAY_ADMIN":   listen,
		"OUTBOX_RELAY_SERVICE": service,
		"OUTBOX_RELAY_LEASE":   relayLease,
		envChild:               child,
		envProxy:               s.credentials,
	}
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		_, ours := set[name]
		return ours || strings.HasPrefix(name, "DEMO_") || strings.HasPrefix(name, "OUTBOX_RELAY_") || strings.HasPrefix(name, "TROUPE_")
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

// relayLease bounds how long a killed relay keeps its lease. Its successor starts at once and waits for the lease.
const relayLease = "1500ms"
