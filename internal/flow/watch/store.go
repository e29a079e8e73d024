package watch

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	//go:embed sql/move_offsets.sql
	moveOffsets string
	//go:embed sql/tally_unexpected.sql
	tallyUnexpected string
	//go:embed sql/come_by_cause.sql
	comeByCause string
	//go:embed sql/come_by_key.sql
	comeByKey string
)

const copyMessages = `COPY troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation,
  causation, key, id_text, flow_text) FROM STDIN (FORMAT binary)`

// errMoved reports that the stored offsets differ from the offsets that this session has written.
var errMoved = errors.New("another watcher of the flow stores in the same database: one is enough")

// moves lists partitions with their old and new offsets.
type moves struct {
	topics, partitions []int32
	ids                []uuid.UUID
	from, to           []int64
}

func (m *moves) add(p partition, at *standing) {
	m.topics, m.partitions, m.ids = append(m.topics, at.topic), append(m.partitions, p.partition), append(m.ids, at.id)
	m.from, m.to = append(m.from, at.stored), append(m.to, at.next)
}

// A batch holds the rows of one transaction. Its memory is reused.
type batch struct {
	copy       []byte
	count      int
	unexpected map[pair]*tally
	cause, key came
}

type tally struct {
	messages    int64
	first, last time.Time
	correlation uuid.UUID
	text        *string
}

// came lists messages that may be the missing answer of a finding.
type came struct {
	rules  []int32
	abouts []uuid.UUID
	keys   []string
	at     []time.Time
}

func (b *batch) reset() {
	b.copy, b.count = append(b.copy[:0], copyHeader...), 0
	b.unexpected = make(map[pair]*tally)
	b.cause, b.key = came{}, came{}
}

// store stores the fetched records and their offsets.
func (s *session) store(ctx context.Context, fetches kgo.Fetches) error {
	s.batch.reset()
	now := time.Now()
	var failed error
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		at := s.places[partition{f.Topic, f.Partition}]
		if at == nil {
			return
		}
		for _, r := range f.Records {
			if r.Offset < at.next || failed != nil {
				continue
			}
			if failed = s.add(ctx, at, r, now); failed == nil {
				at.next = r.Offset + 1
			}
		}
	})
	if failed != nil {
		return failed
	}
	var m moves
	for p, at := range s.places {
		if at.next != at.stored {
			m.add(p, at)
		}
	}
	if len(m.topics) == 0 {
		return nil
	}
	s.batch.copy = append(s.batch.copy, copyEnd...)
	found, err := s.commit(ctx, m)
	if err != nil {
		return err
	}
	for _, at := range s.places {
		at.stored = at.next
	}
	s.counts.stored(s.batch.count)
	s.tell(ctx, found)
	return nil
}

// add adds a record to the batch.
func (s *session) add(ctx context.Context, at *standing, r *kgo.Record, now time.Time) error {
	if r.Attrs.IsControl() || r.Timestamp.Before(now.Add(-s.cfg.Retention)) {
		return nil
	}
	var o row
	o.read(r)
	if o.at.After(now) {
		o.at = now
	}
	if !o.at.After(s.floor) {
		o.at = s.floor.Add(time.Microsecond)
	}
	o.at = o.at.Truncate(time.Microsecond)
	slot, err := s.slot(ctx, o.at)
	if err != nil {
		return err
	}
	typ, known := s.names[string(o.typ)]
	if !known {
		name := string(o.typ)
		if len(s.names) >= maxNames {
			name = others
		}
		if typ, err = s.number(ctx, name); err != nil {
			return err
		}
	}
	b := &s.batch
	where := place{slot: slot, flow: s.flow, topic: at.topic, partition: r.Partition, kind: typ, offset: r.Offset}
	b.copy = o.appendCopy(b.copy, where)
	b.count++
	p := pair{at.topic, typ}
	if !at.quiet && !s.sent[p] {
		b.tally(p, &o)
	}
	if s.open {
		for _, i := range s.answers[p] {
			if s.rules[i].byKey {
				b.key.rules, b.key.at = append(b.key.rules, int32(i)), append(b.key.at, o.at)
				b.key.keys = append(b.key.keys, string(o.key))
			} else if o.caused {
				b.cause.rules, b.cause.at = append(b.cause.rules, int32(i)), append(b.cause.at, o.at)
				b.cause.abouts = append(b.cause.abouts, o.cause)
			}
		}
	}
	return nil
}

func (b *batch) tally(p pair, o *row) {
	t := b.unexpected[p]
	if t == nil {
		t = &tally{first: o.at, last: o.at}
		b.unexpected[p] = t
	}
	t.messages++
	t.correlation, t.text = o.correlation, nil
	if o.flowText != nil {
		text := string(o.flowText)
		t.text = &text
	}
	if o.at.Before(t.first) {
		t.first = o.at
	}
	if o.at.After(t.last) {
		t.last = o.at
	}
}

// commit writes a batch. It moves the offsets first, so that only one of two watchers writes.
func (s *session) commit(ctx context.Context, m moves) (found []Finding, err error) {
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.lockDeclarations(ctx, tx); err != nil {
			return err
		}
		var moved int
		err := tx.QueryRow(ctx, moveOffsets, pgx.NamedArgs{
			"flow": s.flow, "topics": m.topics, "ids": m.ids, "partitions": m.partitions, "from": m.from, "to": m.to,
		}).Scan(&moved)
		if err != nil {
			return fmt.Errorf("offsets: %w", err)
		}
		if moved != len(m.topics) {
			return errMoved
		}
		if s.batch.count == 0 {
			return nil
		}
		if _, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(s.batch.copy), copyMessages); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
		if found, err = s.tallied(ctx, tx); err != nil {
			return fmt.Errorf("unexpected: %w", err)
		}
		late, err := s.come(ctx, tx)
		found = append(found, late...)
		return err
	})
	return found, err
}

// tallied counts the unexpected messages, and returns a finding for each type that is new.
func (s *session) tallied(ctx context.Context, tx pgx.Tx) (found []Finding, err error) {
	if len(s.batch.unexpected) == 0 {
		return nil, nil
	}
	var topics, types []int32
	var messages []int64
	var first, last []time.Time
	var correlations []uuid.UUID
	var texts []*string
	for p, t := range s.batch.unexpected {
		topics, types, messages = append(topics, p.topic), append(types, p.typ), append(messages, t.messages)
		first, last = append(first, t.first), append(last, t.last)
		correlations, texts = append(correlations, t.correlation), append(texts, t.text)
	}
	rows, err := tx.Query(ctx, tallyUnexpected, pgx.NamedArgs{
		"flow": s.flow, "topics": topics, "types": types, "messages": messages, "first": first, "last": last,
		"correlations": correlations, "texts": texts,
	})
	if err != nil {
		return nil, err
	}
	byNumber := make(map[int32]string, len(s.names))
	for name, id := range s.names {
		byNumber[id] = name
	}
	var p pair
	var f Finding
	var fresh bool
	_, err = pgx.ForEachRow(rows, []any{&p.topic, &p.typ, &f.Messages, &f.At, &f.LastAt, &f.Correlation, &fresh}, func() error {
		if fresh {
			f.Kind, f.Topic, f.Type, f.FoundAt = Unexpected, byNumber[p.topic], byNumber[p.typ], time.Now().UTC()
			found = append(found, f.said())
		}
		return nil
	})
	return found, err
}

// come marks the findings whose missing answer is in the batch, and returns them.
func (s *session) come(ctx context.Context, tx pgx.Tx) (found []Finding, err error) {
	var keys findingKeys
	for _, c := range []struct {
		sql string
		came
	}{{comeByCause, s.batch.cause}, {comeByKey, s.batch.key}} {
		if len(c.rules) == 0 {
			continue
		}
		args := pgx.NamedArgs{"flow": s.flow, "rules": c.rules, "abouts": c.abouts, "keys": c.keys, "at": c.at}
		rows, err := tx.Query(ctx, c.sql, args)
		if err != nil {
			return nil, fmt.Errorf("late: %w", err)
		}
		var rule int32
		var about uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&rule, &about}, func() error { keys.add(rule, about); return nil })
		if err != nil {
			return nil, fmt.Errorf("late: %w", err)
		}
	}
	if len(keys.rules) == 0 {
		return nil, nil
	}
	return readFindings(ctx, tx, s.rules, s.flow, findingFilter{keys: keys, most: mostTold})
}

// tell passes findings to Config.Found.
func (s *session) tell(ctx context.Context, found []Finding) {
	for _, f := range found {
		if s.cfg.Found != nil {
			s.cfg.Found(ctx, f)
		}
	}
}
