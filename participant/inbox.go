package participant

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
)

const insertInbox = `
INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING`

// claim inserts m's identity. It says no where the message has taken effect before. While another transaction has the
// same message it waits for that one's end.
func (p *Participant) claim(ctx context.Context, tx pgx.Tx, m *message) (first bool, err error) {
	tag, err := tx.Exec(ctx, insertInbox, p.cfg.Group, m.id, m.redrive)
	return tag.RowsAffected() == 1, ours(err)
}

//go:embed sql/prune_inbox.sql
var pruneInbox string

const (
	pruneEvery = time.Minute
	pruneBatch = 1000
)

// prune forgets what was handled longer than InboxRetention ago, a thousand rows at a time.
func (p *Participant) prune(ctx context.Context) {
	if p.cfg.InboxRetention < 0 {
		return
	}
	trouble := p.repeated("prune inbox")
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		err := p.pruneAll(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *Participant) pruneAll(ctx context.Context) error {
	for {
		tag, err := p.cfg.Pool.Exec(ctx, pruneInbox, pgx.NamedArgs{
			"group": p.cfg.Group, "retention": p.cfg.InboxRetention.Seconds(), "limit": pruneBatch,
		})
		if err != nil || tag.RowsAffected() < pruneBatch {
			return err
		}
	}
}
