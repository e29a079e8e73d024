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

// Stats has the number of expectations of each name, of all members together.
type Stats struct {
	Name    string
	Waiting int           // their time is not over
	Missing int           // their time is over and no event has come
	Late    int           // the event came after its time; counted for Config.Retention
	Alerts  int           // alerts that the receiver has not accepted yet
	Overdue time.Duration // since the time of the one that is overdue the longest was over; 0: none is
}

// Stats reads the declared expectations from the database, and others whose rows it still has. One that has no rows counts 0.
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
