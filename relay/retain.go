package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/outbox"
)

// retainEvery is how often partitions are looked at. They are large.
const retainEvery = 5 * time.Minute

// retain drops partitions that are done. It has a goroutine of its own: a detach may wait for hours.
func (r *Relay) retain(ctx context.Context) {
	logged := false
	for !pause(ctx, retainEvery, nil) && ctx.Err() == nil {
		switch err := r.retainOn(ctx); {
		case err == nil || ctx.Err() != nil:
		case !errors.Is(err, outbox.ErrNotOwner):
			r.quiet.failed("retention", err)
		case !logged: // a choice of the person who granted the rights, not a failure
			logged = true
			r.cfg.Log.Info().Str("reason", err.Error()).Msg("this relay drops no partitions: another program or person drops them")
		}
	}
}

// retainOn drops partitions of one server, round after round, until ctx ends or one round fails. What Retention knows of
// writers is of one connection.
func (r *Relay) retainOn(ctx context.Context) error {
	db, err := r.bindNow(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	retention, err := outbox.NewRetention(outbox.RetentionConfig{Pool: db.Pool, Age: r.cfg.Retention})
	if err != nil {
		return err
	}
	defer retention.Close()
	for {
		if err := r.drop(ctx, db, retention); err != nil {
			return err
		}
		r.quiet.recovered("retention")
		if pause(ctx, retainEvery, nil); ctx.Err() != nil {
			return nil
		}
	}
}

// drop drops what is done by the stored state. Of another cluster's state it drops nothing: a copied or restored database has
// other transactions under the same numbers, and the relay publishes its rows before it stores a state of its own.
func (r *Relay) drop(ctx context.Context, db *server, retention *outbox.Retention) error {
	st, err := r.readState(ctx, db)
	if err != nil {
		return err
	}
	var published outbox.Published
	if st.published != nil {
		published = outbox.Published(*st.published)
		system, err := systemOf(ctx, db)
		switch {
		case err != nil:
			return err
		case st.system != system:
			return fmt.Errorf("the stored state is of cluster %s, this one is %s: no partition is dropped until the relay has a state of its own",
				st.system, system)
		}
	}
	d, err := retention.Drop(ctx, published)
	for _, name := range d.Dropped {
		r.cfg.Log.Info().Str("partition", name).Msg("partition dropped: its rows were published")
	}
	return err
}
