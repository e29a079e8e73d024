package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
)

// Config configures a run. Orders and Program are required.
type Config struct {
	Orders  []orders.Order
	Program []string // starts a child: ChildCommand and its arguments are appended
	// Previous is the command that starts a child of an earlier version. If it is set, every process starts with Previous, and is
	// replaced three times during the run: by Program, by Previous, and by Program again.
	Previous []string

	Style demo.Style // orchestrated or choreographed; default demo.Orchestration

	Fail  demo.Fail // share of orders to refuse on purpose
	Seed  int64     // seed of the refusals and of chaos
	Chaos bool      // kill processes, cut connections and duplicate messages during the run
	Rate  float64   // orders posted a second; 0: as fast as they are accepted

	Postgres string // URL of a server where databases may be created; "": one is started
	Kafka    string // host:port,…; "": one is started
	Registry string // URL; "": one is started

	Keep  bool          // keep databases, topics and groups; of servers started here, their folders
	Limit time.Duration // give up when no order has changed for so long; default 2 min

	// Alongside is called when the services are ready, with the addresses of all servers, and runs concurrently with the run. When
	// the orders have ended the run waits until Alongside returns or ctx ends; then the end of ctx does not end the run, which
	// continues with its checks. Nil: nothing runs.
	Alongside func(ctx context.Context, w World) error

	Progress io.Writer // lines for people; nil: none
	Width    int       // columns of the terminal that Progress is, where one line is overwritten; 0: Progress is no terminal
}

// A World has the names and addresses of a run's topics, servers and databases.
type World struct {
	Flow      string
	Brokers   []string
	Registry  string            // its URL
	Databases map[string]string // URLs by service
	// Declared contains the services' declarations, in a choreography.
	Declared []flow.Declaration
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.Orders) == 0:
		return c, errors.New("no orders")
	case len(c.Program) == 0:
		return c, errors.New("no program to start children with")
	case c.Rate < 0:
		return c, fmt.Errorf("rate %g is negative", c.Rate)
	case c.Limit < 0:
		return c, fmt.Errorf("limit %s is negative", c.Limit)
	}
	c.Style, c.Limit = cmp.Or(c.Style, demo.Orchestration), cmp.Or(c.Limit, 2*time.Minute)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c, nil
}

// pace returns the time from one order to the next. With chaos, posting is slowed down so that faults hit a run in progress.
func (c Config) pace() time.Duration {
	var pace time.Duration
	if c.Rate > 0 {
		pace = time.Duration(float64(time.Second) / c.Rate)
	}
	if c.Chaos {
		pace = max(pace, chaosLeast/time.Duration(len(c.Orders)))
	}
	return pace
}

// services lists the four services in the order of the flow. Each is a hop of the same name.
var services = []string{"order", "payment", "inventory", "shipping"}

// names derives the names of a run's databases and topics from its id.
type names struct{ id string }

func newNames() names {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return names{hex.EncodeToString(b)}
}

func (n names) flow() string                   { return "order-" + n.id }
func (n names) database(service string) string { return "troupe_demo_" + n.id + "_" + service }
