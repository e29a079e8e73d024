package console

import (
	"context"
	"slices"

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
	More     bool         `json:"more"` // there are older ones
}

// openShown limits the partitions of all rebuilds on one page.
const openShown = 2000

// A rebuildRow is a rebuild with its state. Open has its partitions while it has not finished, or the first of them: Partitions counts all.
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
	return !slices.ContainsFunc(f.Databases, func(one rebuildsOf) bool { return one.Error != "" || len(one.Rebuilds) > 0 })
}

func readRebuilds(ctx context.Context, a *ask) (any, error) {
	sources, err := a.chosen()
	if err != nil {
		return nil, err
	}
	return rebuildsFacts{ofEach(sources, func(s *source) rebuildsOf {
		rows, more, err := rebuildRows(ctx, rebuilds.Desk{Pool: s.Pool})
		return rebuildsOf{Database: s.Name, Error: errorText(err), Rebuilds: orEmpty(rows), More: more}
	})}, nil
}

// rebuildRows returns the newest rebuilds. Each group has at most one that has not finished: only those are read with their partitions.
func rebuildRows(ctx context.Context, desk rebuilds.Desk) (rows []rebuildRow, more bool, err error) {
	list, more, err := desk.List(ctx)
	if err != nil {
		return nil, false, err
	}
	shown := 0
	for _, r := range list {
		row := rebuildRow{Rebuild: r, State: r.State(), Open: []partitionRow{}}
		if r.FinishedAt == nil && shown < openShown {
			partitions, err := desk.Partitions(ctx, r.ID, openShown-shown)
			if err != nil {
				return rows, more, err
			}
			for _, p := range partitions {
				row.Open = append(row.Open, partitionRow{p, p.State()})
			}
			shown += len(partitions)
		}
		rows = append(rows, row)
	}
	return rows, more, nil
}

// Unshown returns the number of partitions that Open leaves out.
func (r rebuildRow) Unshown() int {
	if r.FinishedAt != nil {
		return 0
	}
	return max(r.Partitions-len(r.Open), 0)
}
