package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/plain"
)

// A run holds the state of one run, from its servers to its checks.
type run struct {
	cfg     Config
	names   names
	dir     string
	log     zerolog.Logger
	show    *progress
	servers *servers
	fleet   *fleet
	pools   pools
	proxy   *proxy   // nil without chaos
	upgrade *upgrade // nil without a previous version

	result Result
}

// Run runs the flow once and returns the result. A Result whose checks fail is no error; an error is returned if the run did not
// reach its checks, for instance because ctx ended. In either case everything that was started has ended, and everything that was
// created is removed unless it is to be kept. The logs stay.
func Run(ctx context.Context, cfg Config) (_ Result, err error) {
	began := time.Now()
	cfg, err = cfg.withDefaults()
	if err != nil {
		return Result{}, fmt.Errorf("demo: %w", err)
	}
	r := &run{cfg: cfg, names: newNames(), show: &progress{w: cfg.Progress, width: cfg.Width}}
	defer r.show.done()
	closeLog, err := r.openFolder()
	if err != nil {
		return Result{}, fmt.Errorf("demo: %w", err)
	}
	defer closeLog()
	err = r.all(ctx)
	r.result.Seconds = round(time.Since(began).Seconds())
	if err != nil {
		r.log.Error().Err(err).Msg("run ended early")
		return r.result, fmt.Errorf("demo: %w (logs: %s)", err, r.dir)
	}
	return r.result, nil
}

// openFolder creates the folder for the logs. Other users may enter it: under root, Postgres runs as another user.
func (r *run) openFolder() (closeLog func(), err error) {
	if r.dir, err = os.MkdirTemp("", "troupe-demo-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.dir, 0o711); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(r.dir, "demo.log"))
	if err != nil {
		return nil, err
	}
	r.log = zerolog.New(plain.Log(file)).With().Timestamp().Logger()
	r.result.Style, r.result.Flow, r.result.Folder = r.cfg.Style, r.names.flow(), r.dir
	r.show.print("logs: %s", r.dir)
	return func() { _ = file.Close() }, nil
}

func (r *run) all(ctx context.Context) (err error) {
	r.show.print("starting %s", r.cfg.serverNames())
	if r.servers, err = openServers(ctx, r.cfg, r.names, r.dir, r.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.servers.close()) }()
	if r.pools, err = openPools(ctx, r.servers.databaseURLs()); err != nil {
		return err
	}
	defer r.pools.close()
	stopProxy, err := r.startProxy()
	if err != nil {
		return err
	}
	defer stopProxy()
	if err := r.startFleet(ctx); err != nil {
		return err
	}
	defer func() { _ = r.fleet.stop() }() // the orderly stop has returned its error
	waitAlongside, stopAlongside, err := r.startAlongside(ctx)
	if err != nil {
		return err
	}
	defer stopAlongside()
	if err := r.work(ctx); err != nil {
		return err
	}
	if r.cfg.Alongside != nil {
		r.show.print("all orders have ended; Ctrl-C ends the run, with its checks")
		if err := waitAlongside(); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // the end of ctx was the signal to continue
	}
	r.show.print("stopping every process")
	if err := r.fleet.stop(); err != nil {
		return err
	}
	r.show.print("checking")
	if err := r.check(ctx); err != nil {
		return err
	}
	if r.cfg.Keep {
		if err := r.writeKept(); err != nil {
			return err
		}
		r.show.print("kept: databases %s, topics and groups %s.*", r.names.database("*"), r.names.flow())
		r.show.print("to see an order's messages: troupe trace %s --demo %s", r.cfg.Orders[0].ID, r.dir)
	}
	return nil
}

// startAlongside starts Config.Alongside. wait waits until it returns, and stop ends it.
func (r *run) startAlongside(ctx context.Context) (wait func() error, stop func(), err error) {
	group := &errgroup.Group{}
	ctx, cancel := context.WithCancel(ctx)
	if r.cfg.Alongside != nil {
		w := World{Flow: r.names.flow(), Brokers: r.servers.kafka.Addrs(), Registry: r.servers.registry.URL(), Databases: r.servers.databaseURLs()}
		if r.cfg.Style == demo.Choreography {
			if w.Declared, err = declarations(r.names.flow()); err != nil {
				cancel()
				return nil, nil, err
			}
		}
		group.Go(func() error { return r.cfg.Alongside(ctx, w) })
	}
	return group.Wait, func() {
		cancel()
		_ = group.Wait()
	}, nil
}

// startProxy starts the proxy between the children and the servers, if connections are to be cut.
func (r *run) startProxy() (stop func(), err error) {
	if !r.cfg.Chaos {
		return func() {}, nil
	}
	if r.proxy, err = newProxy(); err != nil {
		return nil, err
	}
	return r.runUntilStopped("proxy", r.proxy.run), nil
}

// runUntilStopped starts a function, and returns a function that ends it, waits for it, and logs its error.
func (r *run) runUntilStopped(name string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	group := errgroup.Group{}
	group.Go(func() error { return run(ctx) })
	return func() {
		cancel()
		if err := group.Wait(); err != nil {
			r.log.Error().Err(err).Msg(name + " ended")
		}
	}
}

func (r *run) startFleet(ctx context.Context) (err error) {
	s := settings{
		brokers: strings.Join(r.servers.kafka.Addrs(), ","), registry: r.servers.registry.URL(), flow: r.names.flow(),
		style: r.cfg.Style, fail: r.cfg.Fail, seed: r.cfg.Seed,
	}
	if r.proxy != nil {
		s.credentials = r.proxy.credentials()
	}
	r.show.print("starting %d services and a relay for each", len(services))
	first := r.cfg.Program
	if len(r.cfg.Previous) > 0 {
		first = r.cfg.Previous
	}
	if r.fleet, err = newFleet(first, s, r.servers.databaseURLs(), r.dir, r.log); err != nil {
		return err
	}
	if err := r.fleet.start(ctx); err != nil {
		return errors.Join(err, r.fleet.stop())
	}
	return nil
}

// work posts the orders, injects faults meanwhile if configured, and waits until all is done. It returns no error if nothing
// changes any more: the checks report the missing parts.
func (r *run) work(ctx context.Context) error {
	stopFaults, err := r.startFaults(ctx)
	if err != nil {
		return err
	}
	defer stopFaults()
	ended, err := r.postAndWait(ctx)
	if err != nil {
		return err
	}
	stopFaults()
	if ended {
		// The processes that were killed last are still starting: only a running process can end cleanly.
		if err := r.fleet.ready(ctx, r.fleet.processes); err != nil {
			return err
		}
		client := r.servers.client
		if !r.cfg.Chaos && r.cfg.Style == demo.Orchestration {
			client = nil // no copies to wait for: every message that matters is consumed, or orders would not have ended
		}
		if ended, err = untilQuiet(ctx, r.pools, client, r.names.flow(), r.cfg.Limit); err != nil {
			return err
		}
	}
	if !ended {
		r.result.Stuck = whereStuck(ctx, r.pools)
		r.show.print("nothing has moved for %s", r.cfg.Limit)
	}
	return ctx.Err()
}

func (r *run) postAndWait(ctx context.Context) (ended bool, err error) {
	total := len(r.cfg.Orders)
	r.show.print("posting %s orders", grouped(total))
	poster := newPoster(r.fleet.url("order"), r.cfg.pace())
	defer func() { r.result.Requests = int(poster.accepted.Load() + poster.repeated.Load()) }()
	group, running := errgroup.WithContext(ctx)
	if len(r.cfg.Previous) > 0 {
		r.upgrade = newUpgrade(r.fleet, r.cfg.Previous, r.cfg.Program, total)
		poster.released = r.upgrade.released
		group.Go(func() error { return r.upgrade.run(running, r.servers.databaseURLs(), r.show) })
	}
	posting, stopPosting := context.WithCancel(running)
	group.Go(func() error {
		err := poster.post(posting, r.cfg.Orders)
		if posting.Err() != nil && running.Err() == nil {
			return nil // cancelled by the other goroutine
		}
		return err
	})
	group.Go(func() (err error) {
		defer stopPosting()
		ended, err = untilEnded(running, r.pools["order"], countsSQL[r.cfg.Style], total, func() int { return int(poster.accepted.Load()) }, r.cfg.Limit, r.show)
		return err
	})
	group.Go(func() error { // a process that cannot be kept running ends the wait
		select {
		case <-posting.Done():
			return nil
		case <-r.fleet.running.Done():
			return r.fleet.group.Wait()
		}
	})
	return ended, group.Wait()
}

// startFaults starts the injection of faults, and returns a function that ends it.
func (r *run) startFaults(ctx context.Context) (stop func(), err error) {
	if r.proxy == nil {
		return func() {}, nil
	}
	names, err := flowTopics(ctx, r.servers.client, r.names.flow())
	if err != nil {
		return nil, err
	}
	copier, err := newDuplicator(r.servers.kafka.Addrs(), names, r.cfg.Seed, r.log)
	if err != nil {
		return nil, err
	}
	c := newFaults(r.fleet, r.proxy, copier, r.cfg.Seed, r.log)
	stopChaos := r.runUntilStopped("chaos", c.run)
	r.show.print("chaos: killing processes, cutting connections and sending messages twice, all along")
	return sync.OnceFunc(func() {
		stopChaos()
		r.result.Chaos = c.report()
	}), nil
}

// check reads the facts after all processes have ended, and runs the checks.
func (r *run) check(ctx context.Context) (err error) {
	f := &facts{style: r.cfg.Style, posted: r.cfg.Orders, fail: r.cfg.Fail, seed: r.cfg.Seed}
	if f.declared, err = declarations(r.names.flow()); err != nil {
		return err
	}
	if err := f.readRows(ctx, r.pools); err != nil {
		return err
	}
	if f.messages, err = readMessages(ctx, r.servers.kafka.Addrs(), r.servers.client, r.names.flow()); err != nil {
		return err
	}
	if f.unread, err = readUnread(ctx, r.servers.client, r.names.flow()); err != nil {
		return err
	}
	r.result.summarize(f)
	r.result.add(f.checks()...)
	r.result.add(checkFaults(r.fleet.faults()), checkStopped(len(r.fleet.processes), r.fleet.unclean()))
	if r.upgrade != nil {
		r.result.Replaced = r.upgrade.replaced
		r.result.add(checkUpgrade(r.upgrade.replaced, len(r.fleet.processes)))
	}
	if r.result.Chaos != nil {
		r.result.add(r.result.Chaos.check())
	}
	return nil
}

// serverNames lists the servers that the run starts and the ones that it uses.
func (c Config) serverNames() string {
	var here, there []string
	for _, s := range []struct{ name, address string }{{"Postgres", c.Postgres}, {"Kafka", c.Kafka}, {"the schema registry", c.Registry}} {
		if s.address == "" {
			here = append(here, s.name)
		} else {
			there = append(there, s.name)
		}
	}
	switch {
	case len(here) == 0:
		return "on the servers that were named"
	case len(there) == 0:
		return strings.Join(here, ", ")
	}
	return strings.Join(here, ", ") + "; using your " + strings.Join(there, ", ")
}
