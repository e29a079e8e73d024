package console

import (
	"context"
	"sync"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
)

// rebuildsFacts are the rebuilds of all databases, the newest first.
type rebuildsFacts struct {
	Databases []rebuildsOf `json:"databases"`
}

type rebuildsOf struct {
	Database string       `json:"database"`
	Error    string       `json:"error,omitempty"`
	Rebuilds []rebuildRow `json:"rebuilds"`
}

// A rebuildRow is a rebuild with its state. Open has its partitions while it has not finished.
type rebuildRow struct {
	rebuilds.Rebuild
	State string         `json:"state"`
	Open  []partitionRow `json:"open_partitions"`
}

type partitionRow struct {
	rebuilds.Partition
	State string `json:"state"`
}

// Percent returns the progress: the share of the offsets that were handled again.
func (r rebuildRow) Percent() int64 {
	if r.Total == 0 {
		return 0
	}
	return 100 * r.Done / r.Total
}

// None reports whether there is nothing to show.
func (f rebuildsFacts) None() bool {
	for _, one := range f.Databases {
		if one.Error != "" || len(one.Rebuilds) > 0 {
			return false
		}
	}
	return true
}

func readRebuilds(ctx context.Context, a *ask) (any, error) {
	sources, err := a.chosen()
	if err != nil {
		return nil, err
	}
	f := rebuildsFacts{Databases: make([]rebuildsOf, len(sources))}
	var all sync.WaitGroup
	for i, s := range sources {
		all.Go(func() {
			one := rebuildsOf{Database: s.Name}
			rows, err := rebuildRows(ctx, rebuilds.Desk{Pool: s.Pool})
			if one.Rebuilds = orEmpty(rows); err != nil {
				one.Error = err.Error()
			}
			f.Databases[i] = one
		})
	}
	all.Wait()
	return f, nil
}

// rebuildRows returns the newest rebuilds. Each group has at most one that has not finished: only those are read with their partitions.
func rebuildRows(ctx context.Context, desk rebuilds.Desk) (rows []rebuildRow, err error) {
	list, err := desk.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		row := rebuildRow{Rebuild: r, State: r.State(), Open: []partitionRow{}}
		if r.FinishedAt == nil {
			_, partitions, _, err := desk.Show(ctx, r.ID)
			if err != nil {
				return rows, err
			}
			for _, p := range partitions {
				row.Open = append(row.Open, partitionRow{p, p.State()})
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
