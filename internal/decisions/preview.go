package decisions

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/saga"
)

//go:embed sql/read_stash.sql
var readStash string

// A Preview is a stored saga, for which an operator sees the decisions that an action would cause.
type Preview struct {
	Definition *saga.Definition
	State      saga.State
	Group      string // of its coordinator
	Now        time.Time
}

// Act returns the decision on an operator's action, and the decisions on the stashed events that the saga would take with it. It locks and
// writes nothing.
func (v Preview) Act(ctx context.Context, pool *pgxpool.Pool, e saga.Event) ([]Decided, error) {
	l := &loaded{d: v.Definition, state: v.State}
	l.known, l.searched = associations(l), wantsOf(l)
	p := new(Definitions).begin(previewStore{pool: pool, group: v.Group})
	p.now, p.sagas[v.State.ID()] = v.Now, l
	_, err := p.act(ctx, v.State.ID(), e)
	return p.decided, err
}

// previewStore is the Store of a Preview. FindStashed reads the stash. To all else it answers as if no other saga and no lock existed. Its other
// methods are not called.
type previewStore struct {
	Store // nil
	pool  *pgxpool.Pool
	group string
}

func (previewStore) Guard(context.Context, []Association) error { return nil }

func (previewStore) Associated(context.Context, []Association) (map[Association][]string, map[Association]bool, error) {
	return nil, nil, nil
}

func (previewStore) OpenStashed(context.Context, string, []saga.Event, time.Duration) error {
	return nil
}

func (previewStore) Unlock(context.Context, string) ([]string, error) { return nil, nil }

func (previewStore) DropStashed(context.Context, string, []Association, saga.Event) error { return nil }

func (previewStore) LeftBy(context.Context, string) ([]Association, error) { return nil, nil }

func (s previewStore) FindStashed(ctx context.Context, id string, _ []Association, q StashQuery) ([]Stashed, error) {
	args := q.args(id)
	args["group"] = s.group
	var found [2][]Stashed
	for i, sql := range []string{findKept, readStash} {
		rows, err := s.pool.Query(ctx, sql, args)
		if err == nil {
			found[i], err = collectStashed(rows, q.Wanted)
		}
		if err != nil {
			return nil, err
		}
	}
	return q.inOrder(found[0], found[1]), nil
}
