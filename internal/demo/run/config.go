package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
)

// Config of a run. Orders and Program are required.
type Config struct {
	Orders  []orders.Order
	Program []string // starts a child: ChildCommand's arguments are added to it

	Style demo.Style // who decides what comes next; default demo.Orchestration

	Fail  demo.Fail // refusals on purpose
	Seed  int64     // of the refusals, and of chaos
	Chaos bool      // kill, cut and double while the run goes on
	Rate  float64   // orders posted a second; 0: as fast as they are taken

	Postgres string // URL of a server where databases may be made; "": one is started
	Kafka    string // host:port,…; "": one is started
	Registry string // URL; "": one is started

	Keep  bool          // leave databases, topics and groups; of servers started here, their folders
	Limit time.Duration // give up when no order has moved for so long; default 2 min

	// Beside runs beside the run from when the services are up, and is told where everything is. When the orders have ended
	// the run waits for it, and for ctx to end, which then does not end the run: it goes on to its checks. Nil: nothing.
	Beside func(ctx context.Context, w World) error

	Progress io.Writer // lines for people; nil: none
	Width    int       // columns of the terminal that Progress is, where one line is written over; 0: it is none
}

// A World is where a run's things are.
type World struct {
	Flow      string
	Brokers   []string
	Registry  string            // its URL
	Databases map[string]string // URLs by service
	// Declared is what the services say they do, where none of them orchestrates.
	Declared []reactions.Service
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
	if c.Style == "" {
		c.Style = demo.Orchestration
	}
	if c.Limit == 0 {
		c.Limit = 2 * time.Minute
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c, nil
}

// pace is the time from one order to the next. With chaos, posting takes so long that there is a run to hurt.
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

// services are the four, in the order of the flow. Each is a hop of the same name.
var services = []string{"order", "payment", "inventory", "shipping"}

// names are what a run's things are called.
type names struct{ id string }

func newNames() names {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return names{hex.EncodeToString(b)}
}

func (n names) flow() string                   { return "order-" + n.id }
func (n names) database(service string) string { return "troupe_demo_" + n.id + "_" + service }
