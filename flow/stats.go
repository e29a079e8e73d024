package flow

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

//go:embed sql/count_expectations.sql
var countExpectationsSQL string

// Stats counts the expectations of one name, of all members of the service together.
type Stats struct {
	Name    string
	Waiting int           // expectations whose time is not over
	Missing int           // expectations whose time is over and whose event has not come
	Late    int           // expectations whose event came after its time; counted for Config.Retention
	Alerts  int           // alerts that the receiver has not accepted yet
	Overdue time.Duration // since the longest overdue expectation was due; 0: none is overdue
}

// Stats reads the counts from the database: one Stats for each declared expectation, with zeros if it has no rows, and one for
// each other name that the database still has.
func (s *Service) Stats(ctx context.Context) ([]Stats, error) {
	rows, _ := s.p.Extension().Pool().Query(ctx, countExpectationsSQL, pg.Args{"group": s.p.Group()})
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (st Stats, err error) {
		var overdue float64
		err = row.Scan(&st.Name, &st.Waiting, &st.Missing, &st.Late, &st.Alerts, &overdue)
		st.Overdue = time.Duration(overdue * float64(time.Second))
		return st, err
	})
	if err != nil {
		return nil, fmt.Errorf("flow: count expectations: %w", err)
	}
	for _, e := range s.cfg.Declared.Expectations {
		if !slices.ContainsFunc(all, func(st Stats) bool { return st.Name == e.Name }) {
			all = append(all, Stats{Name: e.Name})
		}
	}
	return all, nil
}
