package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/pg"
)

// The inbox stores the identities of ended messages. A UUIDv7 contains the time when it was made, so identities of the last
// days are stored in a ring of tables, one for each day, and are deleted by truncating a table; all others are stored in a
// table of their own. An identity that is in either is a duplicate, whichever table it would be stored in today.

var (
	//go:embed sql/insert_recent.sql
	insertRecent string
	//go:embed sql/insert_other.sql
	insertOther string
	//go:embed sql/prune_inbox.sql
	pruneInbox string
	//go:embed sql/prune_answers.sql
	pruneAnswers string
	//go:embed sql/prune_barrier.sql
	pruneBarrier string
)

const (
	slots   = inbox.Slots
	maxDays = slots/2 - 2 // an id that was made maxDays ago and is handled today is stored for maxDays from now
)

// identity is the inbox's key for a message: its id and its redrive count. The upper bits of the count hold the generation of a rebuild (rebuild.go).
// An identity may be used as a map key.
type identity struct {
	id      string
	redrive int
}

// claim holds the arguments of the statements that insert the identities of messages.
type claim struct {
	slot    []int16
	ids     [][16]byte // as uuid.UUID they would be sent as text
	redrive []int32

	others        []string
	otherRedrives []int32
	otherBare     []*string // the ids without their sources, as earlier versions stored them; nil: the same
	otherDays     []*int32
	otherIDs      []*uuid.UUID
}

// claim queues the statements that insert the messages' identities.
func (p *Participant) claim(b *pgx.Batch, ms []*message) *claim {
	c := &claim{}
	for _, m := range ms {
		c.add(p, m)
	}
	if len(c.ids) > 0 {
		b.Queue(insertRecent, p.cfg.Group, c.slot, c.ids, c.redrive)
	}
	if len(c.others) > 0 {
		b.Queue(insertOther, p.cfg.Group, c.others, c.otherRedrives, c.otherDays, c.otherIDs, c.otherBare)
	}
	return c
}

func (c *claim) add(p *Participant, m *message) {
	id, day, isV7 := inbox.Recent(m.id)
	switch {
	case isV7 && p.ring.has(day):
		c.slot, c.ids, c.redrive = append(c.slot, int16(day%slots)), append(c.ids, id), append(c.redrive, int32(m.redrive))
		return
	case isV7:
		of := int32(day)
		c.otherDays, c.otherIDs = append(c.otherDays, &of), append(c.otherIDs, &id)
	default:
		c.otherDays, c.otherIDs = append(c.otherDays, nil), append(c.otherIDs, nil)
	}
	c.others, c.otherRedrives = append(c.others, m.id), append(c.otherRedrives, int32(m.redrive))
	var bare *string
	if id := inbox.ID(m.ID); id != m.id {
		bare = &id
	}
	c.otherBare = append(c.otherBare, bare)
}

// read returns the identities that the inbox did not have.
func (c *claim) read(results pgx.BatchResults) (first map[identity]bool, err error) {
	first = make(map[identity]bool, len(c.ids)+len(c.others))
	if len(c.ids) > 0 {
		rows, _ := results.Query()
		var id uuid.UUID
		var redrive int
		_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &redrive}, func() error {
			first[identity{id.String(), redrive}] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(c.others) > 0 {
		rows, _ := results.Query()
		var i identity
		_, err = pgx.ForEachRow(rows, []any{&i.id, &i.redrive}, func() error {
			first[i] = true
			return nil
		})
	}
	return first, err
}

// ring holds the first and the last day whose identities this group inserts into the ring of tables.
type ring struct {
	first, last atomic.Int64
}

func (r *ring) has(day int) bool { return int64(day) >= r.first.Load() && int64(day) <= r.last.Load() }

// days returns for how many days the group's identities are stored; 0 if these are more days than the ring has room for.
func (p *Participant) days() int {
	const day = 24 * time.Hour
	if p.cfg.InboxRetention < 0 || p.cfg.InboxRetention > maxDays*day {
		return 0
	}
	return int((p.cfg.InboxRetention + day - 1) / day)
}

// prepareRing gives each day up to tomorrow a table of the ring. It empties a table before it assigns a new day to the table, 32 days after the
// table's earlier day. It also empties each table whose day is longer ago than twice the longest retention of a group. A table is emptied in constant
// time, and no handler's transaction touches such an old one.
//
// The days are by the database's clock: a member whose own clock is ahead would empty tables of today. now replaces that clock in tests; it is nil
// otherwise.
func (p *Participant) prepareRing(ctx context.Context, now *time.Time) error {
	days := p.days()
	if days == 0 {
		return nil
	}
	today := 0
	err := pgx.BeginFunc(ctx, p.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, lockRing); err != nil {
			return err
		}
		const remember = `INSERT INTO troupe.inbox_groups (consumer_group, days) VALUES ($1, $2)
			ON CONFLICT (consumer_group) DO UPDATE SET days = excluded.days WHERE inbox_groups.days <> excluded.days`
		if _, err := tx.Exec(ctx, remember, p.cfg.Group, days); err != nil {
			return err
		}
		longest := 0
		const ask = `SELECT max(days), floor(extract(epoch FROM coalesce($1, clock_timestamp())) / 86400)::integer
			FROM troupe.inbox_groups`
		if err := tx.QueryRow(ctx, ask, now).Scan(&longest, &today); err != nil {
			return err
		}
		return turnRing(ctx, tx, today, 2*longest+1)
	})
	if err != nil {
		return err
	}
	p.ring.first.Store(int64(today - days))
	p.ring.last.Store(int64(today + ahead))
	return nil
}

const (
	// lockRing lets one member at a time assign days to the inbox's tables. It is a table lock and not an advisory lock: any role that may connect
	// can take an advisory lock, but this lock needs a right on the table.
	lockRing = "LOCK TABLE troupe.inbox_slots IN SHARE UPDATE EXCLUSIVE MODE"
	ahead    = 1 // days ahead of today that have a table
)

func turnRing(ctx context.Context, tx pgx.Tx, today, keep int) error {
	rows, err := tx.Query(ctx, "SELECT slot, day FROM troupe.inbox_slots")
	if err != nil {
		return err
	}
	has := make(map[int]int)
	var slot, day int
	if _, err := pgx.ForEachRow(rows, []any{&slot, &day}, func() error { has[slot] = day; return nil }); err != nil {
		return err
	}
	oldest := today - keep
	for day := today + ahead - slots + 1; day <= today+ahead; day++ {
		slot := day % slots
		had, used := has[slot]
		if used && (had > day || had == day && day >= oldest) || !used && day < oldest {
			continue
		}
		if used {
			table := pgx.Identifier{"troupe", fmt.Sprintf("inbox_recent_%d", slot)}
			if _, err := tx.Exec(ctx, "TRUNCATE "+table.Sanitize()); err != nil {
				return err
			}
		}
		const take = `INSERT INTO troupe.inbox_slots (slot, day) VALUES ($1, $2)
			ON CONFLICT (slot) DO UPDATE SET day = excluded.day`
		const leave = "DELETE FROM troupe.inbox_slots WHERE slot = $1"
		if day >= oldest {
			_, err = tx.Exec(ctx, take, slot, day)
		} else {
			_, err = tx.Exec(ctx, leave, slot)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	pruneEvery = time.Minute
	pruneBatch = 1000
)

// prune runs once a minute. It makes held messages due if they failed while the database's clock was ahead, prepares the ring, and deletes other rows
// that are older than InboxRetention or BarrierRetention, a thousand at a time.
func (p *Participant) prune(ctx context.Context) {
	p.repeat(ctx, "prune inbox", pruneEvery, func(ctx context.Context) error {
		reset := p.resetFutureTimes(ctx, resetFutureHeld)
		limited, cancel := context.WithTimeout(ctx, statementLimit)
		defer cancel()
		if err := p.prepareRing(limited, nil); err != nil {
			return errors.Join(reset, err)
		}
		return errors.Join(reset, p.pruneAll(ctx))
	})
}

// resetFutureTimes executes reset_future_held.sql or reset_future_local.sql.
func (p *Participant) resetFutureTimes(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	_, err := p.cfg.Pool.Exec(ctx, sql, pg.Args{"group": p.cfg.Group})
	return err
}

func (p *Participant) pruneAll(ctx context.Context) error {
	for _, rows := range []struct {
		sql       string
		retention time.Duration
	}{{pruneInbox, p.cfg.InboxRetention}, {pruneAnswers, p.cfg.InboxRetention}, {pruneBarrier, p.cfg.BarrierRetention}} {
		if rows.retention < 0 {
			continue
		}
		args := pg.Args{"group": p.cfg.Group, "retention": rows.retention.Seconds(), "limit": pruneBatch}
		for {
			limited, cancel := context.WithTimeout(ctx, statementLimit)
			tag, err := p.cfg.Pool.Exec(limited, rows.sql, args)
			cancel()
			if err != nil {
				return err
			}
			if tag.RowsAffected() < pruneBatch {
				break
			}
		}
	}
	return nil
}
