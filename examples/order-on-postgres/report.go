package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// report prints the end of each order, the steps of order o-2 and their compensations, and the remaining money and books.
func report(ctx context.Context, pool *pgxpool.Pool, to io.Writer) error {
	const ends = `
SELECT o.id, o.status, s.status, coalesce(s.reason, '')
FROM orders AS o
JOIN troupe.sagas AS s ON s.saga = 'order' AND s.key = o.id
ORDER BY o.id`
	const history = `
SELECT version::text, what, concat_ws(': ', step, why), ''
FROM troupe.saga_log
WHERE saga_id = 'order/o-2'
ORDER BY version, number`
	const sums = `
SELECT (SELECT sum(cents - refunded) FROM payments),
       (SELECT coalesce(sum(copies), 0) FROM reservations),
       (SELECT sum(free) FROM stock)`

	fmt.Fprintln(to, "order  is         its saga     because")
	if err := table(ctx, pool, to, ends, "%-5s  %-9s  %-11s  %s"); err != nil {
		return err
	}
	fmt.Fprintln(to, "\nhow o-2 went")
	if err := table(ctx, pool, to, history, "  %s  %-21s  %s%s"); err != nil {
		return err
	}
	var cents, reserved, free int
	if err := pool.QueryRow(ctx, sums).Scan(&cents, &reserved, &free); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "\n%d cents kept, %d books reserved, %d free\n", cents, reserved, free)
	return err
}

// table prints a row of four texts as a line.
func table(ctx context.Context, pool *pgxpool.Pool, to io.Writer, sql, format string) error {
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return err
	}
	var a, b, c, d string
	_, err = pgx.ForEachRow(rows, []any{&a, &b, &c, &d}, func() error {
		_, err := fmt.Fprintln(to, strings.TrimRight(fmt.Sprintf(format, a, b, c, d), " "))
		return err
	})
	return err
}
