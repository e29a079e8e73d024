package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
)

// A Replay publishes rows again, under the same ids, that were published before and are still in the table. The zero value
// replays all of them, to their own topics.
//
// It runs independently of the relay, with a client of its own, and outside of the relay's order: the repeats of a key come
// in the order of their positions, but mixed with the rows that the relay publishes meanwhile, so a consumer sees old
// messages after new ones. A consumer that recognises ids processes none of them twice; for the same reason a participant
// that has processed them does nothing.
//
// Rows that are not published yet, and failed rows, are left to the relay. Rows that are no longer in the table cannot be
// replayed: under poll a row is deleted once it is published, under wal with its partition.
type Replay struct {
	From, To     int64     // positions, both inclusive; 0: the lowest, and the highest at the start
	Since, Until time.Time // created_at, Since inclusive and Until exclusive; zero: no limit
	Topic        string    // only rows of this topic
	Into         string    // topic to publish to; default: each row's own
	Rate         int       // rows per second, at most; default 100
}

// ReplayProgress describes how far a replay has come.
type ReplayProgress struct {
	Lowest    int64 // lowest position of the table at the start; lower rows are gone
	Position  int64 // all rows up to here are done
	Last      int64 // position at which it ends
	Published int64 // rows published
}

// errNothingPublished means that the table holds no row that is known to be published.
var errNothingPublished = errors.New("nothing that was published is in the table: under poll a row is deleted once it is published, " +
	"and cannot be replayed")

const (
	defaultReplayRate = 100
	mostReplayRate    = 100_000
	mostReplayRows    = 100 // rows read at once
)

// Validate returns an error for values that cannot be intended.
func (r Replay) Validate() error {
	switch {
	case r.From < 0 || r.To < 0:
		return errors.New("replay: a position below 0")
	case r.To > 0 && r.From > r.To:
		return fmt.Errorf("replay: from position %d to %d: want the lower one first", r.From, r.To)
	case !r.Until.IsZero() && !r.Since.Before(r.Until):
		return fmt.Errorf("replay: since %s until %s: want the earlier one first", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339))
	case r.Rate < 0 || r.Rate > mostReplayRate:
		return fmt.Errorf("replay: %d rows a second: want 1 to %d", r.Rate, mostReplayRate)
	case len(r.Into) > maxTopicName:
		return fmt.Errorf("replay: a topic's name of %d bytes: want at most %d", len(r.Into), maxTopicName)
	case holdsCheckpoint(r.Into):
		return fmt.Errorf("replay: into %s: %w", r.Into, errCheckpointTopic)
	}
	return nil
}

// Run publishes the rows that are in the table at the start. It returns when all of them are acknowledged, at the first row
// that is refused, or when ctx ends. A Replay with From = Position + 1 of the returned progress continues after that. Run
// reads from one server process, since the snapshot of published rows has another meaning on any other: after a failover or a
// restart it returns an error. progress, which may be nil, is called at the start and after each batch. Of cfg, Run uses
// Pool, Brokers, Kafka, Service, ContentType, Avro and AvroTopic. A row is encoded for its own topic, also if it is sent to
// another. While the broker is unavailable, Run waits.
func (r Replay) Run(ctx context.Context, cfg Config, progress func(ReplayProgress)) (ReplayProgress, error) {
	var p ReplayProgress
	if err := r.Validate(); err != nil {
		return p, err
	}
	fill(&r.Rate, defaultReplayRate)
	pool, err := pg.SessionPool(cfg.Pool)
	if err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
	defer closePool(pool)
	db, err := bindNow(ctx, pool)
	if err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
	defer db.Close()
	snapshot, err := publishedSnapshot(ctx, db)
	if err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
	err = db.QueryRow(ctx, "SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM troupe.outbox").Scan(&p.Lowest, &p.Last)
	if err != nil {
		return p, fmt.Errorf("replay: read the outbox's bounds: %w", err)
	}
	if r.To > 0 {
		p.Last = min(p.Last, r.To)
	}
	p.Position = max(r.From, p.Lowest) - 1
	client, err := kafka.NewClient(cfg.Brokers, append([]kgo.Opt{
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.UnknownTopicRetries(1),
	}, cfg.Kafka...)...)
	if err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
	defer client.Close()
	tell := func() {
		if progress != nil {
			progress(p)
		}
	}
	tell()
	began := time.Now()
	for {
		rows, err := r.read(ctx, db, snapshot, p)
		if err != nil {
			return p, fmt.Errorf("replay: behind position %d: %w", p.Position, err)
		}
		if len(rows) == 0 {
			p.Position = max(p.Position, p.Last)
			tell()
			return p, nil
		}
		if err := r.send(ctx, client, rows, &cfg); err != nil {
			return p, fmt.Errorf("replay: positions %d to %d: %w", rows[0].Position, rows[len(rows)-1].Position, err)
		}
		p.Position = rows[len(rows)-1].Position
		p.Published += int64(len(rows))
		tell()
		due := began.Add(time.Duration(p.Published) * time.Second / time.Duration(r.Rate))
		sleep(ctx, time.Until(due), nil)
	}
}

// publishedSnapshot returns the relay's stored snapshot: all rows visible in it are published, or failed. It is not valid
// on another cluster, which numbers its transactions differently.
func publishedSnapshot(ctx context.Context, db *server) (string, error) {
	type kept struct {
		Published string
		Here      bool
	}
	rows, err := db.Query(ctx, `
		SELECT coalesce(published::text, ''), system_id = (SELECT system_identifier::text FROM pg_control_system())
		FROM troupe.relay_state
		ORDER BY updated_at DESC
		LIMIT 1`)
	if err != nil {
		return "", fmt.Errorf("read the stored snapshot: %w", err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[kept])
	switch {
	case err != nil:
		return "", fmt.Errorf("read the stored snapshot: %w", err)
	case len(states) == 0 || states[0].Published == "":
		return "", errNothingPublished
	case !states[0].Here:
		return "", errors.New("the stored snapshot is of another cluster: a copy or a restored dump; " +
			"once a relay has streamed here, its rows can be replayed")
	}
	return states[0].Published, nil
}

func (r Replay) read(ctx context.Context, db *server, snapshot string, p ReplayProgress) ([]outboxrow.Row, error) {
	found, err := db.Query(ctx, replayRows, pg.Args{
		"position": p.Position, "last": p.Last, "snapshot": snapshot, "topic": r.Topic,
		"since": orNil(r.Since), "until": orNil(r.Until), "rows": min(max(r.Rate/10, 1), mostReplayRows), "bytes": claimBytes,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(one pgx.CollectableRow) (row outboxrow.Row, err error) {
		return row, one.Scan(row.Fields()...)
	})
}

func (r Replay) send(ctx context.Context, client *kgo.Client, rows []outboxrow.Row, cfg *Config) error {
	defaults := outboxrow.Defaults{Source: cfg.Service, ContentType: cfg.ContentType}
	records := make([]*kgo.Record, len(rows))
	for n := range rows {
		message, err := rows[n].Message(defaults)
		if err != nil {
			return err
		}
		records[n] = kafka.Record(message)
		if cfg.Avro != nil {
			if err := cfg.encode(ctx, records[n], rows[n].Type); err != nil {
				return fmt.Errorf("position %d: %w", rows[n].Position, err)
			}
		}
		if r.Into != "" {
			records[n].Topic = r.Into
		}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
