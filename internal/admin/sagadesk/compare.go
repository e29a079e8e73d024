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

// Compared has the numbers of sagas that started in a period, and in the period of the same length before it, and have a status now.
// Each number is limited to MostCompared.
type Compared struct {
	Status  saga.Status `json:"status"`
	Now     int         `json:"now"`
	Earlier int         `json:"before"`
}

// MostCompared is the number up to which Compare counts.
const MostCompared = 10_000

// Compare counts sagas by status. Now counts the ones that started since a time, Earlier the ones that started in the same time before it.
func (d *Desk) Compare(ctx context.Context, since time.Time, long time.Duration) ([]Compared, error) {
	return collect[Compared](ctx, d, "compare started sagas", countPeriods, pgx.NamedArgs{
		"statuses": decisions.Statuses, "since": since, "earlier": since.Add(-long), "limit": MostCompared,
	})
}
