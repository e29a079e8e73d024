package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/find_stranger.sql
	findStranger string
	//go:embed sql/find_waited_for.sql
	findWaitedFor string
)

// The first halves of the keys of all advisory locks of Troupe are in this range: leaseClass and others here, and the coordinator's.
const firstClass, lastClass = 0x74727500, 0x747275ff

// strangersEvery is the time between two looks for sessions of other roles that transactions wait for.
const strangersEvery = 10 * time.Second

// stranger returns an error if a session holds the advisory lock of class and object whose role has no rights on Troupe's tables. Postgres
// has no rights on advisory locks: a role that may connect to the database can take each.
func (p *Participant) stranger(ctx context.Context, class, object int32) error {
	named, err := p.nameStranger(ctx, findStranger, pg.Args{"class": int64(class), "object": int64(object)})
	return errors.Join(named, err)
}

// nameStranger returns an error that names the session that a statement finds; nil if it finds none.
func (p *Participant) nameStranger(ctx context.Context, find string, args pg.Args) (named, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var pid int
	var role string
	err = p.cfg.Pool.QueryRow(ctx, find, args).Scan(&pid, &role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find the session that holds an advisory lock: %w", err)
	}
	return fmt.Errorf("process %d of the database server, of role %q, holds an advisory lock of this participant: end it with "+
		"SELECT pg_terminate_backend(%d), and let no such role connect to this database", pid, role, pid), nil
}

// watchStrangers looks for sessions as of stranger that transactions wait for, until ctx ends: a saga's start or a batch waits for an
// advisory lock without a limit of its own. Its result is logged, and is for Ready.
func (p *Participant) watchStrangers(ctx context.Context) {
	trouble := p.repeated("look for locks of other roles")
	tick := time.NewTicker(strangersEvery)
	defer tick.Stop()
	for {
		named, err := p.nameStranger(ctx, findWaitedFor, pg.Args{"first": int64(firstClass), "last": int64(lastClass)})
		if ctx.Err() != nil {
			return
		}
		if named != nil {
			named = fmt.Errorf("a transaction waits: %w", named)
		}
		trouble.report(errors.Join(named, err))
		p.mu.Lock()
		p.blocked = named
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
