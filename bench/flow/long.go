package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/bench/harness"
)

// refusals are the shares of orders that hops refuse in a long run, so that compensations run too.
const refusals = "payment=2%,inventory=3%,shipping=5%"

// sample is what a long run uses at one time.
type sample struct {
	Rate     float64 // orders that ended a second since the last sample
	Services float64 // resident memory of the largest service, MB
	Relay    float64 // the same of the largest relay
	Outbox   float64 // size of all outboxes with their indexes, MB
	Slot     float64 // size of the log that the server keeps for the slot that is furthest behind, MB
	Log      float64 // size of the server's log files, MB
	Data     float64 // size of all databases, MB
	PerOrder float64 // growth of the databases since the last sample, kB for each order that ended
}

var samples = harness.Table[sample]{Width: 10, Columns: []harness.Column[sample]{
	{Head: "orders/s", Width: 9, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Rate }},
	{Head: "service MB", Width: 11, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Services }},
	{Head: "relay MB", Width: 9, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Relay }},
	{Head: "outbox MB", Width: 10, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Outbox }},
	{Head: "slot MB", Width: 8, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Slot }},
	{Head: "log MB", Width: 8, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Log }},
	{Head: "data MB", Width: 9, Decimals: 1, Figure: func(s *sample) *float64 { return &s.Data }},
	{Head: "kB/order", Width: 9, Decimals: 1, Figure: func(s *sample) *float64 { return &s.PerOrder }},
}}

// runLong runs the order flow at a rate for a time, and prints 12 samples of memory and disk.
func runLong(ctx context.Context, program, dir string, length time.Duration, rate float64) (err error) {
	servers := &harness.Servers{}
	defer func() {
		if e := servers.Close(); err == nil {
			err = e
		}
	}()
	if err := servers.Open(ctx, map[string]string{"max_wal_size": "1GB", "checkpoint_timeout": "5min"}); err != nil { // as installed
		return err
	}
	orders := int(rate * length.Seconds())
	file := filepath.Join(dir, "orders.csv")
	if err := writeOrders(file, orders); err != nil {
		return err
	}
	fmt.Printf("%s; %d orders at %g/s, refused: %s\n\n", servers.Header(), orders, rate, refusals)
	samples.Heading()

	cmd := exec.CommandContext(ctx, program, "demo", "--output", "json", "--orders", file, "--rate", strconv.FormatFloat(rate, 'f', -1, 64),
		"--fail", refusals, "--postgres", servers.Postgres.URL(""), "--brokers", strings.Join(servers.Kafka.Addrs(), ","))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	result := new(strings.Builder)
	cmd.Stdout = result
	if err := cmd.Start(); err != nil {
		return err
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan error, 1)
	go func() { sampled <- showSamples(sampling, servers.Postgres.URL(""), cmd.Process.Pid, length/12) }()
	ended := cmd.Wait()
	stop()
	unsampled := <-sampled
	var r struct {
		round
		Completed   int
		Compensated int
		Parked      int
		OK          bool
		Checks      []json.RawMessage
	}
	if err := json.Unmarshal([]byte(result.String()), &r); err != nil {
		return errors.Join(ended, unsampled, fmt.Errorf("the demo's result: %w: %s", err, result))
	}
	fmt.Printf("\n%d completed, %d compensated, %d parked; p50 %.1f ms, p95 %.1f, p99 %.1f; %d checks, all held: %t\n",
		r.Completed, r.Compensated, r.Parked, r.LatencyMS.P50, r.LatencyMS.P95, r.LatencyMS.P99, len(r.Checks), r.OK)
	return errors.Join(ended, unsampled)
}

// writeOrders writes a file of n orders.
func writeOrders(path string, n int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := csv.NewWriter(file)
	_ = w.Write([]string{"order_id", "customer_id", "placed_at", "quantity", "amount"})
	for i := range n {
		_ = w.Write([]string{fmt.Sprintf("long-%07d", i), fmt.Sprintf("%05d", i%5000), "2026-01-01", strconv.Itoa(1 + i%4), fmt.Sprintf("%d.%02d", 5+i%90, i%100)})
	}
	w.Flush()
	return w.Error()
}

// showSamples prints a sample each time until ctx ends.
func showSamples(ctx context.Context, url string, demo int, each time.Duration) error {
	start, last, ended := time.Now(), time.Now(), 0.0
	var before sample
	for n := 1; harness.Sleep(ctx, time.Until(start.Add(time.Duration(n)*each))) == nil; n++ {
		s, orders, err := look(ctx, url)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if s.Services, s.Relay = harness.Process(demo).LargestOf("service"), harness.Process(demo).LargestOf("relay"); s.Services == 0 {
			return nil // the flow has ended
		}
		now := time.Now()
		s.Rate = (orders - ended) / now.Sub(last).Seconds()
		if n > 1 {
			s.PerOrder = (s.Data - before.Data) * 1024 / (orders - ended)
		}
		samples.Show(now.Sub(start).Round(time.Second).String(), s)
		before, last, ended = s, now, orders
	}
	return nil
}

// look returns what the server stores, and the number of orders that have ended.
func look(ctx context.Context, url string) (s sample, orders float64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return s, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, `SELECT (SELECT coalesce(sum(size), 0) / 1048576.0 FROM pg_ls_waldir()),
		(SELECT coalesce(max(pg_current_wal_lsn() - restart_lsn), 0) / 1048576.0 FROM pg_replication_slots)`).Scan(&s.Log, &s.Slot)
	if err != nil {
		return s, 0, err
	}
	rows, _ := conn.Query(ctx, "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> current_database()")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return s, 0, err
	}
	for _, name := range names {
		cfg := conn.Config().Copy()
		cfg.Database = name
		if err := lookInto(ctx, cfg, &s, &orders); err != nil {
			return s, 0, err
		}
	}
	return s, orders, nil
}

func lookInto(ctx context.Context, cfg *pgx.ConnConfig, s *sample, orders *float64) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var outbox, data, ended float64
	err = conn.QueryRow(ctx, `SELECT (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) / 1048576.0 FROM pg_class
		WHERE relnamespace = 'troupe'::regnamespace AND relname ~ '^outbox(_p|$)' AND relkind = 'r'), pg_database_size(current_database()) / 1048576.0`).Scan(&outbox, &data)
	if err != nil {
		return err
	}
	err = conn.QueryRow(ctx, "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NOT NULL").Scan(&ended)
	s.Outbox, s.Data, *orders = s.Outbox+outbox, s.Data+data, *orders+ended
	return err
}
