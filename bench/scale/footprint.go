package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// leaves lists statements that leave data: each is run footprintRows times, in transactions of one and of a hundred.
var leaves = []struct{ name, table, sql string }{
	{"an outbox row of 600 bytes", "troupe.outbox", `INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES ('order.payment.commands', 'order-' || $1::int, 'shop.ChargePayment', convert_to(repeat('x', 600), 'UTF8'))`},
	{"an id in the inbox", "troupe.inbox_recent", `INSERT INTO troupe.inbox_recent (slot, id, consumer_group)
		SELECT 7, troupe.uuidv7(), 'order.payment' WHERE $1::int >= 0`},
	{"a dead letter of 600 bytes", "troupe.dead_letters", `INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic,
			topic_id, partition, "offset", key, headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		VALUES ('order.payment', 'order.payment/ChargePayment', 'transient', 'bank answered 503 after 1.2s', 8, 'order.payment.commands',
			'00000000-0000-0000-0000-000000000001', 0, $1::int, convert_to('order-1', 'UTF8'), convert_to(repeat('h', 400), 'UTF8'),
			convert_to(repeat('x', 600), 'UTF8'), troupe.uuidv7()::text, 'shop.ChargePayment', troupe.uuidv7()::text, now(), now())`},
}

const footprintRows = 20_000

// printFootprint measures with a server of its own, which it removes afterwards. Checkpoints are far apart: right after one, the
// first change of each page writes the whole page to the log.
func printFootprint(ctx context.Context, w io.Writer) (err error) {
	server, err := devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: map[string]string{
		"wal_level": "logical", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "autovacuum": "off", "synchronous_commit": "off",
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	url, err := server.CreateDatabase(ctx, "troupe_bench_scale", "")
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	fmt.Fprintf(w, "%-34s%16s%16s%16s\n", "bytes of", "log, each alone", "log, of 100", "on disk")
	for _, l := range leaves {
		var log [2]int64
		for i, batch := range []int{1, 100} {
			if log[i], err = fill(ctx, conn, l.sql, batch); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		var disk int64
		const size = `SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree($1::regclass)`
		const plain = `SELECT pg_total_relation_size($1::regclass)`
		for _, ask := range []string{plain, size} {
			var n *int64
			if err := conn.QueryRow(ctx, ask, l.table).Scan(&n); err != nil {
				return err
			}
			if n != nil {
				disk = max(disk, *n)
			}
		}
		fmt.Fprintf(w, "%-34s%16d%16d%16d\n", l.name, log[0]/footprintRows, log[1]/footprintRows, disk/(2*footprintRows))
	}
	return nil
}

// fill runs a statement for each row and returns the bytes by which the log grew.
func fill(ctx context.Context, conn *pgx.Conn, sql string, batch int) (grew int64, err error) {
	var from string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&from); err != nil {
		return 0, err
	}
	for n := 0; n < footprintRows; n += batch {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			queued := &pgx.Batch{}
			for i := range batch {
				queued.Queue(sql, batch*footprintRows+n+i)
			}
			return tx.SendBatch(ctx, queued).Close()
		})
		if err != nil {
			return 0, err
		}
	}
	err = conn.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint", from).Scan(&grew)
	return grew, err
}
