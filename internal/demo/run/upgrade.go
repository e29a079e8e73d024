package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/migrations"
)

// An upgrade replaces the processes of a fleet, one at a time, while orders are posted, as docs/upgrades.md describes. It has
// three phases: an upgrade to the new version, a rollback to the previous version, and an upgrade to the new version again.
type upgrade struct {
	fleet    *fleet
	previous []string      // command of the previous version
	next     []string      // command of the new version
	orders   int           // orders of the run
	released chan struct{} // one value for each order that may be posted
	replaced int           // replacements that are done
}

func newUpgrade(f *fleet, previous, next []string, orders int) *upgrade {
	return &upgrade{fleet: f, previous: previous, next: next, orders: orders, released: make(chan struct{}, orders)}
}

// run migrates the databases with the new version, and then replaces the processes. Before each replacement it releases an
// equal share of the orders, so that every process is replaced under load even if replacements are slow.
func (u *upgrade) run(ctx context.Context, databases map[string]string, show *progress) error {
	defer close(u.released)
	for _, name := range services {
		if err := migrations.Up(ctx, databases[name]); err != nil {
			return fmt.Errorf("migrate the database of %s: %w", name, err)
		}
	}
	up := slices.Concat(u.fleet.of(relay), u.fleet.of(service))
	down := slices.Clone(up)
	slices.Reverse(down)
	for _, phase := range []struct {
		text      string
		program   []string
		processes []*process
	}{
		{"upgrade: replacing every process by this version", u.next, up},
		{"rollback: replacing every process by the previous version", u.previous, down},
		{"upgrade: replacing every process by this version again", u.next, up},
	} {
		show.print("%s", phase.text)
		for _, p := range phase.processes {
			u.release(3 * len(up))
			if err := p.replace(ctx, phase.program); err != nil {
				return err
			}
			if err := u.fleet.ready(ctx, []*process{p}); err != nil {
				return err
			}
			u.replaced++
		}
	}
	return nil
}

// release lets the orders be posted that belong to the next replacement, of steps replacements in all.
func (u *upgrade) release(steps int) {
	done := u.replaced * u.orders / steps
	for range (u.replaced+1)*u.orders/steps - done {
		u.released <- struct{}{}
	}
}

// checkUpgrade checks that every process was replaced in each of the three phases.
func checkUpgrade(replaced, processes int) Check {
	return newCheck("every process was replaced by an upgrade, a rollback and another upgrade", func(v *verdict) {
		v.equal(fmt.Sprintf("%%d of %d", 3*processes), 3*processes, replaced)
	})
}
