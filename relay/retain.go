package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/retention"
)

// retainEvery is the time between two checks of the partitions. It is long since partitions are large.
const retainEvery = 5 * time.Minute

// retain drops partitions whose rows are all published. Type Dropper of package internal/retention lists the effect of a kill at each step.
// retain has a goroutine of its own, since it may take hours to detach a partition.
func (r *Relay) retain(ctx context.Context, every time.Duration) {
	logged := false
	for !sleep(ctx, every, nil) && ctx.Err() == nil {
		switch err := r.retainOn(ctx, every); {
		case err == nil || ctx.Err() != nil:
		case !errors.Is(err, retention.ErrNotOwner):
			r.quiet.failed("retention", err)
		case !logged: // the operator who granted the rights decided this; it is not a failure
			logged = true
			r.cfg.Log.Info().Str("reason", err.Error()).Msg("this relay drops no partitions: another program or person drops them")
		}
	}
}

// retainOn drops partitions at intervals of every, until ctx ends or an attempt fails. It keeps one Dropper on one server process, because
// the Dropper's list of open writers is valid for one connection only.
func (r *Relay) retainOn(ctx context.Context, every time.Duration) error {
	db, err := bindNow(ctx, r.pool)
	if err != nil {
		return err
	}
	defer db.Close()
	dropper, err := retention.New(retention.Config{Pool: db.Pool, Age: r.cfg.Retention})
	if err != nil {
		return err
	}
	defer dropper.Close()
	for {
		if err := r.drop(ctx, db, dropper); err != nil {
			return err
		}
		r.quiet.recovered("retention")
		if sleep(ctx, every, nil); ctx.Err() != nil {
			return nil
		}
	}
}

// drop drops the partitions whose rows are published according to the stored state. If that state is of another cluster, it drops nothing: in a
// copied or restored database a transaction id of the state may be the id of another transaction. In that case the relay publishes all rows of the
// table before it stores a state of this cluster.
func (r *Relay) drop(ctx context.Context, db *server, dropper *retention.Dropper) error {
	st, err := r.readState(ctx, db)
	if err != nil {
		return err
	}
	var published retention.Published
	if st.published != nil {
		published = retention.Published(*st.published)
		system, err := systemOf(ctx, db)
		switch {
		case err != nil:
			return err
		case st.system != system:
			return fmt.Errorf("the stored state is of cluster %s, this one is %s: no partition is dropped until the relay has a state of its own",
				st.system, system)
		}
	}
	d, err := dropper.Drop(ctx, published)
	for _, name := range d.Dropped {
		r.cfg.Log.Info().Str("partition", name).Msg("partition dropped: its rows were published")
	}
	r.logKept(d.Kept)
	if err == nil { // else the list ends at the partition that failed
		r.forgetKept(d.Kept)
	}
	return err
}

// logKeptEvery is the time for which a full partition must stay before the relay warns of it, and the time between two warnings. Some
// reasons hold for minutes at each partition, for example an open transaction.
const logKeptEvery = time.Hour

// A keptLog records the log lines of logKept about one full partition that was not dropped.
type keptLog struct {
	warn  time.Time // when the next warning is due
	aging bool      // the line was logged that the partition waits for Config.Retention
}

// logKept logs why full partitions are not dropped. Such a partition may be detached already. Then no relay reads its rows, and no other
// line reports them.
func (r *Relay) logKept(kept []retention.KeptPartition) {
	now := time.Now()
	for _, k := range kept {
		last, there := r.keptPartitions[k.Name]
		var line *zerolog.Event // nil: nothing is logged
		switch {
		case k.Aging:
			if !last.aging {
				line = r.cfg.Log.Info()
			}
			last = keptLog{now.Add(logKeptEvery), true}
		case !there:
			last.warn = now.Add(logKeptEvery)
		case !now.Before(last.warn):
			line = r.cfg.Log.Warn()
			last.warn = now.Add(logKeptEvery)
		}
		r.keptPartitions[k.Name] = last
		line.Str("partition", k.Name).Str("why", k.Why).Msg("a full partition stays")
	}
}

// forgetKept removes the entries of partitions that are not in kept, since these were dropped.
func (r *Relay) forgetKept(kept []retention.KeptPartition) {
	maps.DeleteFunc(r.keptPartitions, func(name string, _ keptLog) bool {
		return !slices.ContainsFunc(kept, func(k retention.KeptPartition) bool { return k.Name == name })
	})
}
