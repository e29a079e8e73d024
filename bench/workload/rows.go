// Package workload has the load of the fault benchmarks, rows of an outbox or commands and sagas, and the counts of lost, doubled and
// reordered ones afterwards.
package workload

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// Writers is the number of concurrent writers of rows: each uses a connection.
	Writers = 15
	rate    = 750 // rows a second, of all writers

	// RowsTable creates the table in which each row is also written. No relay changes it.
	RowsTable = "CREATE TABLE written (id uuid PRIMARY KEY, key text NOT NULL, number bigint NOT NULL)"
)

// A row is a row of a writer. The rows of a key are numbered in the order of their commits.
type row struct {
	id     uuid.UUID
	key    string
	number int64
}

// written returns the time that an id of version 7 has: the one in which its row was written.
func (r row) written() time.Time {
	seconds, nanoseconds := r.id.Time().UnixTime()
	return time.Unix(seconds, nanoseconds)
}

// rows writes rows and notes the commits that were acknowledged.
type rows struct {
	pool  *pgxpool.Pool
	topic string

	committed sync.Map // the ids of rows whose commit was acknowledged
}

// write inserts rows until ctx ends. It returns when all writers have ended.
func (l *rows) write(ctx context.Context) {
	var all sync.WaitGroup
	for n := range Writers {
		all.Go(func() { l.writeKeys(ctx, n) })
	}
	all.Wait()
}

// writeKeys inserts rows with keys of its own until ctx ends. A row whose commit was not acknowledged may be there or not: the next one
// has the next number.
func (l *rows) writeKeys(ctx context.Context, writer int) {
	tick := time.NewTicker(time.Second * Writers / rate)
	defer tick.Stop()
	for number := int64(1); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one := row{uuid.Must(uuid.NewV7()), fmt.Sprintf("%d-%d", writer, number%5), number}
		// Not ctx: a commit that is abandoned could come after the rows of the database are counted.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := pgx.BeginFunc(limited, l.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(limited, `WITH w AS (INSERT INTO written (id, key, number) VALUES ($1, $2, $3))
				INSERT INTO troupe.outbox (id, topic, key, type, payload) VALUES ($1, $4, $2, 'Row', $5)`,
				one.id, one.key, one.number, l.topic, []byte(strconv.FormatInt(one.number, 10)))
			return err
		})
		cancel()
		if err == nil {
			l.committed.Store(one.id, struct{}{})
		}
	}
}
