package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/migrations"
)

// askLimit bounds the queries of status and check to one server.
const askLimit = 10 * time.Second

func (p Program) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the active relay and the waiting rows",
		Long: `status reads the database, and no relay: the holder of the lease, the number of waiting rows and the
age of the oldest, failed rows, and the version of the migrations. It is for people: its role needs the rights of
viewer or relay-operator (outbox-relay grants), and a relay's own role does not have them.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop outbox-relay status
  outbox-relay status --output json | jq .outbox.pending`,
		Args: noArguments,
	}
	declareOne(cmd, parkedSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, config, err := p.readDatabase(cmd, parkedSettings...)
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

// databaseStatus is the output of status; times are in seconds.
type databaseStatus struct {
	Database   string `json:"database"`
	Table      string `json:"table,omitempty"` // set if the table has a mapping; then only its failed rows are known
	Migrations struct {
		Current int64 `json:"current"`
		Latest  int64 `json:"latest"`
	} `json:"migrations"`
	Lease  *desk.Lease  `json:"lease"`  // of the leader, the active relay; null: no relay has run yet
	Leases []desk.Lease `json:"leases"` // of each shard that was ever taken
	Relay  *desk.Outbox `json:"relay"`  // all that is known of the relay; null: the table was never published
	Rows   *rowStatus   `json:"outbox"`
}

type rowStatus struct {
	Pending  int64   `json:"pending"`
	Oldest   float64 `json:"oldest_seconds"`
	Retrying int64   `json:"retrying"`
	Parked   int64   `json:"parked"`
	Waiting  int64   `json:"waiting"` // rows that wait behind a retrying or parked row of their key
	Headroom int64   `json:"headroom"`
}

func rowsOf(s retention.Stats) *rowStatus {
	return &rowStatus{s.Pending, s.Oldest.Seconds(), s.Retrying, s.Parked, s.Failed - s.Retrying - s.Parked, s.Headroom}
}

func readStatus(ctx context.Context, config *pgxpool.Config, of desk.Table) (databaseStatus, error) {
	s := databaseStatus{Database: config.ConnConfig.Database, Leases: []desk.Lease{}}
	now, err := pg.ConnConfig(ctx, config)
	if err != nil {
		return s, err
	}
	m, err := migrations.GetConfig(ctx, now)
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
	var stats retention.Stats
	if of.Mapping != nil {
		stats, err = readMappedStats(ctx, pool, of)
		s.Table = of.Name
	} else {
		stats, err = retention.ReadStats(ctx, pool)
	}
	if err != nil {
		return s, err
	}
	s.Rows = rowsOf(stats)
	all, err := desk.Look(ctx, pool)
	if err != nil {
		return s, fmt.Errorf("look at the relays: %w", err)
	}
	for _, o := range all {
		if o.Table == of.Name {
			s.Relay, s.Leases = &o, o.Leases
		}
	}
	for _, l := range s.Leases {
		if l.Shard <= 0 {
			s.Lease = &l
		}
	}
	return s, nil
}

func (s databaseStatus) print(to io.Writer) error {
	lines := [][2]string{
		{"database", s.Database},
		{"migrations", fmt.Sprintf("%d of %d", s.Migrations.Current, s.Migrations.Latest)},
	}
	if s.Rows != nil {
		lines = append(lines, s.relayLines()...)
		lines = append(lines, [2]string{"failed rows", fmt.Sprintf("%d retrying, %d parked, %d of the same keys behind them", s.Rows.Retrying, s.Rows.Parked, s.Rows.Waiting)})
		if s.Table == "" {
			lines = slices.Insert(lines, len(lines)-1,
				[2]string{"waiting rows", fmt.Sprintf("%d, the oldest for %.1f s", s.Rows.Pending, s.Rows.Oldest)})
			lines = append(lines, [2]string{"headroom", fmt.Sprintf("%d positions", s.Rows.Headroom)})
		}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(to, "%-14s%s\n", l[0], plain.Line(l[1], len(l[1]))); err != nil {
			return err
		}
	}
	return nil
}

// relayLines reports the active relay of each shard, its source, and why it waits.
func (s databaseStatus) relayLines() (lines [][2]string) {
	if s.Lease == nil {
		lines = append(lines, [2]string{"active relay", "none has run yet"})
	}
	for _, l := range s.Leases {
		holder := fmt.Sprintf("%s, term %d", l.Holder, l.Term)
		if !l.Held {
			holder = "none; the last was " + holder
		}
		name := "active relay"
		if s.Relay.Shards > 1 {
			name = fmt.Sprintf("shard %d", l.Shard)
		}
		lines = append(lines, [2]string{name, holder})
	}
	if s.Relay == nil {
		return lines
	}
	if p := s.Relay.Paused; p != nil {
		lines = append(lines, [2]string{"paused", fmt.Sprintf("since %s by %s: %s", p.Since.UTC().Format(time.RFC3339), p.Actor, p.Reason)})
	}
	if s.Relay.Source != "" {
		lines = append(lines, [2]string{"source", s.Relay.Source + ": " + s.Relay.Why})
	}
	if slot := s.Relay.Slot; slot != nil {
		text := fmt.Sprintf("%s, %s, keeps %.1f MB of the log", slot.Name, slot.WALStatus, float64(slot.Retained)/(1<<20))
		if slot.Safe != nil {
			text += fmt.Sprintf(", %.1f MB more are safe", float64(*slot.Safe)/(1<<20))
		}
		lines = append(lines, [2]string{"slot", text})
	}
	return lines
}

func printJSON(to io.Writer, body any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(body)
}
