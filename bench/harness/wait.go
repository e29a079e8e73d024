package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Until calls done each 20 ms until it returns true or an error. After the limit it returns an error that begins with late.
func Until(ctx context.Context, limit time.Duration, late string, done func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := done(limited)
		if ok || err != nil {
			return err
		}
		if Sleep(limited, 20*time.Millisecond) == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%s after %s", late, limit)
	}
}

// UntilCount waits until a query returns n or more.
func UntilCount(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, sql string, n int) error {
	return Until(ctx, limit, fmt.Sprintf("%s: not yet %d", sql, n), func(ctx context.Context) (bool, error) {
		var count int
		err := pool.QueryRow(ctx, sql).Scan(&count)
		return count >= n, err
	})
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
