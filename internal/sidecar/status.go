package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/outbox"
)

// askLimit bounds what status and check ask of one server.
const askLimit = 10 * time.Second

func (p Program) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say who leads, and what waits",
		Long: `status asks the database, not a relay: which relay holds the lease, how many rows wait and since
when, which of them are in trouble, and how far the migrations are.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop outbox-relay status
  outbox-relay status --output json | jq .outbox.pending`,
		Args: noArguments,
	}
	declareOne(cmd, parkedSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, err := p.read(cmd, parkedSettings...)
		if err != nil {
			return err
		}
		config, err := v.database()
		if err != nil {
			return err
		}
		form, err := v.oneOf(output)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
		defer cancel()
		of, err := v.table()
		if err != nil {
			return err
		}
		s, err := readStatus(ctx, config, of)
		if err != nil {
			return err
		}
		if form == "json" {
			return printJSON(p.Stdout, s)
		}
		return s.print(p.Stdout)
	}
	return cmd
}

// databaseStatus is what status prints; times are seconds.
type databaseStatus struct {
	Database   string `json:"database"`
	Table      string `json:"table,omitempty"` // with a mapping; then only its rows in trouble are known
	Migrations struct {
		Current int64 `json:"current"`
		Latest  int64 `json:"latest"`
	} `json:"migrations"`
	Lease *leaseStatus `json:"lease"` // null: no relay has run yet
	Rows  *rowStatus   `json:"outbox"`
}

type leaseStatus struct {
	Holder  string  `json:"holder"`
	Term    int64   `json:"term"`
	Held    bool    `json:"held"`
	Expires float64 `json:"expires_in_seconds"` // negative: that long ago
}

type rowStatus struct {
	Pending  int64   `json:"pending"`
	Oldest   float64 `json:"oldest_seconds"`
	Retrying int64   `json:"retrying"`
	Parked   int64   `json:"parked"`
	Headroom int64   `json:"headroom"`
}

func rowsOf(s outbox.Stats) *rowStatus {
	return &rowStatus{s.Pending, s.Oldest.Seconds(), s.Retrying, s.Parked, s.Headroom}
}

func readStatus(ctx context.Context, config *pgxpool.Config, of tableOf) (databaseStatus, error) {
	s := databaseStatus{Database: config.ConnConfig.Database}
	m, err := migrations.GetConfig(ctx, config.ConnConfig)
	if err != nil {
		return s, err
	}
	s.Migrations.Current, s.Migrations.Latest = m.Current, m.Latest
	if m.Current == 0 {
		return s, nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return s, err
	}
	defer pool.Close()
	var stats outbox.Stats
	if of.mapping != nil {
		stats, err = of.readStats(ctx, pool)
		s.Table = of.name
	} else {
		stats, err = outbox.ReadStats(ctx, pool)
	}
	if err != nil {
		return s, err
	}
	s.Rows = rowsOf(stats)
	var l leaseStatus
	err = pool.QueryRow(ctx, `
		SELECT holder, term, extract(epoch FROM expires_at - clock_timestamp())::float8
		FROM troupe.relay_leases
		WHERE shard = CASE WHEN $1 = '' THEN 0 ELSE (SELECT shard FROM troupe.mapped_tables WHERE name = $1) END`, s.Table).Scan(&l.Holder, &l.Term, &l.Expires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read the lease: %w", err)
	}
	l.Held = l.Expires > 0
	s.Lease = &l
	return s, nil
}

func (s databaseStatus) print(to io.Writer) error {
	lines := [][2]string{
		{"database", s.Database},
		{"migrations", fmt.Sprintf("%d of %d", s.Migrations.Current, s.Migrations.Latest)},
	}
	if s.Rows != nil {
		leader := "none has run yet"
		if s.Lease != nil {
			leader = fmt.Sprintf("%s, term %d", s.Lease.Holder, s.Lease.Term)
			if !s.Lease.Held {
				leader = fmt.Sprintf("none; the last was %s", leader)
			}
		}
		lines = append(lines,
			[2]string{"active relay", leader},
			[2]string{"in trouble", fmt.Sprintf("%d retrying, %d parked", s.Rows.Retrying, s.Rows.Parked)})
		if s.Table == "" {
			lines = slices.Insert(lines, len(lines)-1,
				[2]string{"waiting rows", fmt.Sprintf("%d, the oldest for %.1f s", s.Rows.Pending, s.Rows.Oldest)})
			lines = append(lines, [2]string{"headroom", fmt.Sprintf("%d positions", s.Rows.Headroom)})
		}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(to, "%-14s%s\n", l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

func printJSON(to io.Writer, body any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(body)
}
