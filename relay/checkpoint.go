package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/topics"
)

// A checkpoint is an LSN, the end of a transaction: each row that was committed before it is published, or recorded as failed.
//
// committed is the time of that transaction's commit. The server may be set back to an image of its disk from before the transaction. It
// then has the same identifier and timeline, and its log may reach the LSN again, but not with a commit of this time.
//
// The position and the id of the transaction's last row are for operators.
type checkpoint struct {
	lsn       wal.LSN
	committed time.Time // zero: no row was published yet
	system    string
	timeline  int32
	recorded  wal.LSN // the log up to here contains the record of each failed row that was committed before lsn
	message   string  // content of a message that is in the log just before recorded; empty: not known
	server    string  // the server process that wrote the message, see pg.ServerSQL; empty: not known
	position  int64
	id        uuid.UUID
}

// A checkpointRecord is the JSON form of a checkpoint in the relay's topic. The record's key is the slot's name.
type checkpointRecord struct {
	LSN       string    `json:"lsn"`
	Committed time.Time `json:"committed,omitzero"`
	System    string    `json:"system"`
	Timeline  int32     `json:"timeline"`
	Recorded  string    `json:"recorded,omitempty"`
	Message   string    `json:"message,omitempty"`
	Server    string    `json:"server,omitempty"`
	Position  int64     `json:"position"`
	ID        uuid.UUID `json:"id"`
}

// A startRecord names the relay that took the transactional id, for operators. readCheckpoint writes it, with the key startKey.
type startRecord struct {
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

const startKey = "started"

// checkpointTimeout limits the search for the last checkpoint in the relay's topic, which reads a few records. After that time the relay tries
// again with a new client.
const checkpointTimeout = 30 * time.Second

// errCheckpointTopic is the error for a service's row whose topic belongs to a relay. That relay would read the row as its own checkpoint.
var errCheckpointTopic = errors.New("the topic is a relay's own: it holds the checkpoint of exactly-once delivery")

// holdsCheckpoint reports whether a topic holds the checkpoint of this relay or of another one.
func holdsCheckpoint(topic string) bool { return strings.HasPrefix(topic, topics.Relay("")) }

// kafkaRecord makes the record that stores p in the relay's topic.
func (p checkpoint) kafkaRecord(t *transactor) *kgo.Record {
	value, _ := json.Marshal(checkpointRecord{p.lsn.String(), p.committed, p.system, p.timeline, p.recorded.String(), p.message, p.server, p.position, p.id}) // cannot fail
	return &kgo.Record{Topic: t.topic, Key: []byte(t.relay.cfg.Slot), Value: value}
}

func parseCheckpoint(value []byte) (p checkpoint, err error) {
	var r checkpointRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return p, err
	}
	p.committed, p.system, p.timeline, p.message, p.server, p.position, p.id = r.Committed, r.System, r.Timeline, r.Message, r.Server, r.Position, r.ID
	if p.lsn, err = wal.ParseLSN(r.LSN); err == nil && r.Recorded != "" {
		p.recorded, err = wal.ParseLSN(r.Recorded)
	}
	return p, err
}

// provision creates the relay's topic if it is missing: one partition, compacted, with the broker's default replication. Its segments are
// small, since the broker does not compact the segment that it writes to. The settings of a topic that exists are not checked.
func (t *transactor) provision(ctx context.Context) error {
	found, err := kadm.NewClient(t.client).ListTopics(ctx, t.topic)
	if err != nil {
		return fmt.Errorf("look for topic %s: %w", t.topic, err)
	}
	switch d := found[t.topic]; {
	case d.Err == nil && len(d.Partitions) == 1:
		return nil
	case d.Err == nil && len(d.Partitions) > 1:
		return fmt.Errorf("%w: topic %s has %d partitions: it must have one", errStop, t.topic, len(d.Partitions))
	case d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s: %w", t.topic, d.Err)
	}
	err = kafka.Provision(ctx, t.client, kafka.Topic{Name: t.topic, Partitions: 1, Config: map[string]string{
		"cleanup.policy": "compact",
		"segment.bytes":  "16777216",
	}})
	if err != nil {
		return fmt.Errorf("create topic %s, or have it created with one partition and cleanup.policy=compact: %w", t.topic, err)
	}
	return nil
}

// resume returns the LSN at which the stream begins, and sets t.at. confirmed is the LSN in troupe.relay_state, up to which the log may be
// confirmed to Postgres. The stream begins at the checkpoint of the last committed Kafka transaction, if that checkpoint is after confirmed
// and this server's log contains it. Otherwise it begins at confirmed, and resume stores confirmed as the checkpoint.
//
// healed means that this stream begins with a new slot or a sweep. Its repeats were reported before, so a missing checkpoint is not
// reported.
func (t *transactor) resume(ctx context.Context, conn *wal.Conn, system wal.System, confirmed wal.LSN, healed bool) (wal.LSN, error) {
	reading, cancel := context.WithTimeout(ctx, t.relay.reading)
	defer cancel()
	at, found, err := t.readCheckpoint(reading)
	if err != nil {
		return 0, fmt.Errorf("read the checkpoint in %s: %w", t.topic, err)
	}
	inLog := false
	recorded, message, err := t.writeMessage(ctx) // the log up to here contains the record of each failed row
	if err != nil {
		return 0, err
	}
	if found && at.lsn > confirmed && at.system == system.ID {
		if inLog, err = inherits(ctx, conn, system, recorded, at); err == nil && inLog {
			inLog, err = t.logContains(ctx, at, at.timeline == system.Timeline && at.server != system.Server)
		}
		if err != nil {
			return 0, err
		}
	}
	switch {
	case inLog:
		t.at = at
		t.at.timeline, t.at.recorded, t.at.message, t.at.server = system.Timeline, recorded, message, system.Server
	case found && at.lsn <= confirmed:
	case found:
		t.relay.repeats(fmt.Sprintf("the checkpoint in %s is of another server, or of a future that this one lost: %s, timeline %d, system %s, "+
			"row %d; this one is at %s, timeline %d, system %s: rows that were published and not confirmed to it are published again",
			t.topic, at.lsn, at.timeline, at.system, at.position, system.LSN, system.Timeline, system.ID))
	case !healed:
		t.relay.repeats("there is no checkpoint in " + t.topic + ": rows that were published and not confirmed to Postgres are published again")
	}
	if confirmed > t.at.lsn {
		t.at = checkpoint{lsn: confirmed, system: system.ID, timeline: system.Timeline, recorded: recorded, message: message, server: system.Server}
		if err := t.begin(); err != nil {
			return 0, err
		}
		if err := t.commitWith(t.at.kafkaRecord(t)); err != nil {
			return 0, err
		}
		t.lastEnd = time.Time{}
	}
	t.next = t.at
	t.relay.state.update(func(s *Status) { s.Checkpoint = t.at.lsn.String() })
	return t.at.lsn, nil
}

// inherits reports whether this server's log can contain the checkpoint at, and the records of all failed rows before it. written is the
// end of the server's log.
//
// After a failover, at is of another timeline. A promoted standby has the log of its primary up to the switch to its own timeline. So the
// checkpoint and the records must be before the switch. If a failed row was recorded after the switch, this server has neither the record
// nor a published copy of the row.
//
// A server that was set back to an image of its disk keeps its timeline. If the image is from between the commit of a failed row and the
// commit of its record, this server has no record, and its log ends before the record's LSN, unless services have written since: then
// logContains looks for the checkpoint's message too. A checkpoint without the time of a commit is an LSN that was confirmed to Postgres. If
// that is ahead of the confirmed LSN of this server, the server was set back, and the log may have another commit there.
func inherits(ctx context.Context, conn *wal.Conn, system wal.System, written wal.LSN, at checkpoint) (bool, error) {
	if at.timeline == system.Timeline {
		return at.recorded <= written && !at.committed.IsZero(), nil
	}
	end, err := conn.TimelineEnd(ctx, system.Timeline, at.timeline)
	return max(at.lsn, at.recorded) <= end, err
}

// writeMessage writes a message with a content of its own to the log. It returns the content, and the end of the log behind the message,
// including the part that is not on the server's disk yet.
func (t *transactor) writeMessage(ctx context.Context) (end wal.LSN, content string, err error) {
	content = uuid.NewString()
	if _, err := t.db.Exec(ctx, writeMessage, pg.Args{"content": content}); err != nil {
		return 0, "", fmt.Errorf("write a message to the log: %w", err)
	}
	var text string
	if err := t.db.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return 0, "", fmt.Errorf("read the end of the log: %w", err)
	}
	end, err = wal.ParseLSN(text)
	return end, content, err
}

// logContains reports whether this server's log has a commit that ends at at.lsn, with the time at.committed. It reads the slot's log from
// the LSN that was last confirmed up to at.lsn, which is some seconds of log. If restarted is true, the server is of the checkpoint's timeline but
// another process. Then logContains also reports false if at.recorded is after at.lsn, and the log up to at.recorded does not have the message
// at.message: the server was set back to an image that has the commit, but not all records of failed rows before it, and its log has passed
// at.recorded again. That part of the log may be long: after a start, at.recorded is behind all rows that wait to be published.
//
// A query of the table could not show this. The last row of the transaction may be deleted, or not visible yet. On a server that was set
// back to an older image, another row may have the same position, and even the same id if the service wrote the row again.
//
// The session's client_encoding is SQL_ASCII, so that the server sends text without converting it: the conversion to UTF-8 can fail.
func (t *transactor) logContains(ctx context.Context, at checkpoint, restarted bool) (there bool, err error) {
	var committed *time.Time
	if !at.committed.IsZero() {
		committed = &at.committed
	}
	upTo, message := at.lsn, ""
	if restarted && at.message != "" && at.recorded > at.lsn {
		upTo, message = at.recorded, at.message
	}
	cfg := &t.relay.cfg
	err = pgx.BeginFunc(ctx, t.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'SQL_ASCII'"); err != nil {
			return err
		}
		return t.relay.whileReading(ctx, t.db, tx, func() error {
			return tx.QueryRow(ctx, findTransaction, pg.Args{
				"slot": cfg.Slot, "lsn": at.lsn.String(), "committed": committed, "up_to": upTo.String(), "message": message, "publication": pgx.Identifier{cfg.Publication}.Sanitize(),
			}).Scan(&there)
		})
	})
	if err != nil {
		return false, fmt.Errorf("%w: look for the checkpoint in %s in the log: %w", errStream, t.topic, err)
	}
	return there, nil
}

// readCheckpoint returns the last checkpoint in the relay's topic. First it commits a start record. The predecessor is fenced by then, so
// it can write no checkpoint after that record. Then readCheckpoint reads the records before the start record, backwards and in growing
// pieces, since the topic may have many records that are not compacted yet.
func (t *transactor) readCheckpoint(ctx context.Context) (at checkpoint, found bool, err error) {
	value, _ := json.Marshal(startRecord{t.relay.cfg.Holder, time.Now()}) // a string and a time cannot fail
	mine := &kgo.Record{Topic: t.topic, Key: []byte(startKey), Value: value}
	if err := t.begin(); err != nil {
		return at, false, err
	}
	if err := t.commitWith(mine); err != nil {
		return at, false, err
	}
	t.lastEnd = time.Time{} // the first transaction with rows need not wait for Config.Transactions
	for piece := int64(64); ; piece *= 64 {
		from := max(0, mine.Offset-piece)
		if at, found, err = t.readFrom(ctx, from, mine.Offset); err != nil || found || from == 0 {
			return at, found, err
		}
	}
}

// readFrom returns the last checkpoint among the records with offsets between from and to, both inclusive.
func (t *transactor) readFrom(ctx context.Context, from, to int64) (at checkpoint, found bool, err error) {
	reader, err := kafka.NewClient(t.relay.cfg.Brokers, append(append([]kgo.Opt{}, t.relay.cfg.Kafka...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {0: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return at, false, err
	}
	defer reader.Close()
	for {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return at, false, err
		}
		for _, r := range fetches.Records() {
			if string(r.Key) == t.relay.cfg.Slot {
				if at, err = parseCheckpoint(r.Value); err != nil {
					return at, false, fmt.Errorf("%w: offset %d: %w", errStop, r.Offset, err)
				}
				found = true
			}
			if r.Offset >= to {
				return at, found, nil
			}
		}
	}
}
