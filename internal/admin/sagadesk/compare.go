package sagadesk

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

//go:embed sql/count_periods.sql
var countPeriods string

// Compared has two numbers of sagas that have a status at present: the ones that started in a period, and the ones that started in the period
// of the same length before it. Each number is at most MostCompared.
type Compared struct {
	Status  saga.Status `json:"status"`
	Now     int         `json:"now"`
	Earlier int         `json:"before"`
}

// MostCompared is the largest number that Compare counts to.
const MostCompared = 10_000

// Compare counts sagas by their present status. Now has the ones that started since a time, Earlier the ones that started in the period of
// this length before it.
func (d *Desk) Compare(ctx context.Context, since time.Time, length time.Duration) ([]Compared, error) {
	return collect[Compared](ctx, d, "compare started sagas", countPeriods, pgx.NamedArgs{
		"statuses": decisions.Statuses, "since": since, "earlier": since.Add(-length), "limit": MostCompared,
	})
}
