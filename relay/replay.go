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

// A Replay publishes rows again that were published before and are still in the table. They keep their ids. The zero value replays all such
// rows, to their own topics.
//
// A Replay runs independently of the relay, with its own Kafka client. It repeats the rows of a key in the order of their positions, but
// the relay may publish new rows of the key in between. So a consumer may receive an old message after a newer one. A repeat has no effect
// on a consumer that ignores ids that it has processed, such as a participant.
//
// A Replay skips failed rows, and rows that are not published yet. It cannot replay rows that are gone: poll deletes each published row,
// and under wal old partitions are dropped.
type Replay struct {
	From, To     int64     // positions, both inclusive; 0: the lowest, and the highest at the start
	Since, Until time.Time // created_at, Since inclusive and Until exclusive; zero: no limit
	Topic        string    // only rows of this topic
	Into         string    // topic to publish to; default: each row's own
	Rate         int       // rows per second, at most; default 100
}

// A ReplayProgress describes how far a replay has come.
type ReplayProgress struct {
	Lowest    int64 // lowest position of the table at the start; lower rows are gone
	Position  int64 // all rows up to this position are published or skipped
	Last      int64 // position at which it ends
	Published int64 // rows published
}

// errNothingPublished means that no row of the table is known to be published.
var errNothingPublished = errors.New("nothing that was published is in the table: under poll a row is deleted once it is published, " +
	"and cannot be replayed")

const (
	defaultReplayRate = 100
	maxReplayRate     = 100_000
	maxReplayRows     = 100 // rows read at once
)

// Validate returns an error if a field has a value that cannot be intended.
func (r Replay) Validate() error {
	switch {
	case r.From < 0 || r.To < 0:
		return errors.New("replay: a position below 0")
	case r.To > 0 && r.From > r.To:
		return fmt.Errorf("replay: from position %d to %d: want the lower one first", r.From, r.To)
	case !r.Until.IsZero() && !r.Since.Before(r.Until):
		return fmt.Errorf("replay: since %s until %s: want the earlier one first", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339))
	case r.Rate < 0 || r.Rate > maxReplayRate:
		return fmt.Errorf("replay: %d rows a second: want 1 to %d", r.Rate, maxReplayRate)
	case len(r.Into) > maxTopicName:
		return fmt.Errorf("replay: a topic's name of %d bytes: want at most %d", len(r.Into), maxTopicName)
	case holdsCheckpoint(r.Into):
		return fmt.Errorf("replay: into %s: %w", r.Into, errCheckpointTopic)
	}
	return nil
}

// Run publishes the rows that are in the table when Run starts. It returns when all of them are acknowledged, or when ctx ends. It also
// returns after a batch in which a row was refused; other rows of that batch may be published.
//
// Run stores no progress. It calls progress at the start and after each batch, unless progress is nil, and returns the last progress. To
// continue, also after a kill, run a Replay with From = Position + 1 of the last progress.
//
// Run returns an error after a failover or a restart of the server, since the snapshot of published rows is valid on one server process
// only. While the broker is unavailable, Run waits. If ctx ends meanwhile, rows may be published that the last progress does not count.
//
// Run uses these fields of cfg: Pool, Brokers, Kafka, Service, ContentType, Avro and AvroTopic. Each row is encoded for its own topic, even
// with Into.
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
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.UnknownTopicRetries(1), kgo.ProduceRequestTimeout(brokerTimeout),
		kgo.AllowIdempotentProduceCancellation(), // otherwise Run could not end while a broker does not answer
	}, cfg.Kafka...)...)
	if err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
	defer client.Close()
	if err := checkIdempotence(client); err != nil {
		return p, fmt.Errorf("replay: %w", err)
	}
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

// publishedSnapshot returns the snapshot that the relay has stored: each row that is visible in it is published, or recorded as failed. It
// returns an error if there is no such snapshot, or if it is of another cluster, where the same transaction ids are other transactions.
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

// read returns the next published rows after p.Position, up to p.Last.
func (r Replay) read(ctx context.Context, db *server, snapshot string, p ReplayProgress) ([]outboxrow.Row, error) {
	found, err := db.Query(ctx, replayRows, pg.Args{
		"position": p.Position, "last": p.Last, "snapshot": snapshot, "topic": r.Topic,
		"since": orNil(r.Since), "until": orNil(r.Until), "rows": min(max(r.Rate/10, 1), maxReplayRows), "bytes": claimBytes,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(one pgx.CollectableRow) (row outboxrow.Row, err error) {
		return row, one.Scan(row.Fields()...)
	})
}

// send publishes rows, and returns when all of them are acknowledged or one is refused.
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
