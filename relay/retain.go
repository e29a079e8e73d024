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
	retention, err := outbox.NewRetention(outbox.RetentionConfig{Pool: r.cfg.Pool, Age: r.cfg.Retention})
	if err != nil {
		r.quiet.failed("retention", err)
		return
	}
	defer retention.Close()
	for {
		if pause(ctx, retainEvery, nil); ctx.Err() != nil {
			return
		}
		st, err := r.readState(ctx)
		if err == nil {
			err = r.drop(ctx, retention, st)
		}
		switch {
		case err == nil:
			r.quiet.recovered("retention")
		case ctx.Err() == nil:
			r.quiet.failed("retention", err)
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
