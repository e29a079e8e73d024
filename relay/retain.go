package relay

import (
	"context"
	"time"

	"github.com/troupe-go/troupe/outbox"
)

// retainEvery is how often partitions are looked at. They are large.
const retainEvery = 5 * time.Minute

// retain drops partitions that are done. It has a goroutine of its own: a detach may wait for hours.
func (r *Relay) retain(ctx context.Context) {
	for !pause(ctx, retainEvery, nil) && ctx.Err() == nil {
		if err := r.retainOn(ctx); err != nil && ctx.Err() == nil {
			r.quiet.failed("retention", err)
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
		st, err := r.readState(ctx, db)
		if err == nil {
			err = r.drop(ctx, retention, st)
		}
		if err != nil {
			return err
		}
		r.quiet.recovered("retention")
		if pause(ctx, retainEvery, nil); ctx.Err() != nil {
			return nil
		}
	}
}

func (r *Relay) drop(ctx context.Context, retention *outbox.Retention, st standing) error {
	var published outbox.Published
	if st.published != nil {
		published = outbox.Published(*st.published)
	}
	d, err := retention.Drop(ctx, published)
	for _, name := range d.Dropped {
		r.cfg.Log.Info().Str("partition", name).Msg("partition dropped: its rows were published")
	}
	return err
}
