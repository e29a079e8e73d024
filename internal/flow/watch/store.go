package watch

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/register_flow.sql
	registerFlow string
	//go:embed sql/count_unexpected.sql
	countUnexpected string
	//go:embed sql/insert_offsets.sql
	insertOffsets string
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

// maxNames limits how many names are distinguished, since services choose the names of types freely.
const maxNames = 10_000

// others is the name of all types beyond maxNames.
const others = "(other)"

// errMoved reports that the stored offsets differ from the offsets that this session has written.
var errMoved = errors.New("another watcher of the flow stores in the same database: one is enough")

// A pair is a topic and a type, as numbers of names.
type pair struct{ topic, typ int32 }

// memory holds data that was read from the database.
type memory struct {
	flow      int32
	names     map[string]int32
	days      map[int]bool // days whose slot is assigned to them
	pruned    int          // the day of the last prune
	floor     time.Time    // messages are judged up to this time: a record with an older one counts as just after it
	sent      map[pair]bool
	mentioned map[string]bool // topics that the declarations name
	answers   map[pair][]int  // the rules that a message answers
	open      bool            // there are findings that an answer may change
	batch     batch
}

// begin loads all data that the session needs.
func (s *session) begin(ctx context.Context) error {
	s.names, s.days = make(map[string]int32), make(map[int]bool)
	if err := s.loadNames(ctx); err != nil {
		return err
	}
	if err := s.register(ctx); err != nil {
		return err
	}
	if err := s.prune(ctx); err != nil {
		return err
	}
	found, err := s.discover(ctx)
	if err != nil {
		return err
	}
	s.seen = found
	return s.loadPlaces(ctx)
}

func (s *session) loadNames(ctx context.Context) error {
	rows, err := s.cfg.Pool.Query(ctx, "SELECT id, name FROM troupe.watch_names")
	if err != nil {
		return err
	}
	var id int32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error { s.names[name] = id; return nil })
	return err
}

// number returns the number of a name, and stores a new name.
func (s *session) number(ctx context.Context, name string) (int32, error) {
	if id, known := s.names[name]; known {
		return id, nil
	}
	name = strings.Clone(name)
	const insert = `WITH new AS (INSERT INTO troupe.watch_names (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id)
		SELECT id FROM new UNION ALL SELECT id FROM troupe.watch_names WHERE name = $1`
	var id int32
	if err := s.cfg.Pool.QueryRow(ctx, insert, name).Scan(&id); err != nil {
		return 0, fmt.Errorf("name: %w", err)
	}
	s.names[name] = id
	return id, nil
}

// register stores the declarations that the flow is judged by. If they have changed, all stored messages are judged again.
func (s *session) register(ctx context.Context) (err error) {
	if s.flow, err = s.number(ctx, s.cfg.Flow); err != nil {
		return err
	}
	s.sent, s.answers, s.mentioned = make(map[pair]bool), make(map[pair][]int), make(map[string]bool)
	for m := range sentBy(s.cfg.Declared) {
		p, err := s.pair(ctx, m)
		if err != nil {
			return err
		}
		s.sent[p] = true
	}
	for i, r := range s.rules {
		for _, m := range r.on {
			s.mentioned[m.topic] = true
			if _, err := s.pair(ctx, m); err != nil {
				return err
			}
		}
		for _, m := range r.answers {
			p, err := s.pair(ctx, m)
			if err != nil {
				return err
			}
			s.answers[p] = append(s.answers[p], i)
		}
	}
	return pgx.BeginFunc(ctx, s.cfg.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, registerFlow, pgx.NamedArgs{"flow": s.flow, "declared": string(s.declared), "answer": s.cfg.Answer})
		if err == nil && tag.RowsAffected() > 0 {
			err = s.forget(ctx, tx)
		}
		if err != nil {
			return fmt.Errorf("register: %w", err)
		}
		const state = `SELECT coalesce((SELECT max(judged) FROM troupe.watch_marks WHERE flow = $1), 'epoch'),
			EXISTS (SELECT FROM troupe.watch_findings WHERE flow = $1 AND came_at IS NULL)`
		return tx.QueryRow(ctx, state, s.flow).Scan(&s.floor, &s.open)
	})
}

func (s *session) pair(ctx context.Context, m message) (p pair, err error) {
	if p.topic, err = s.number(ctx, m.topic); err == nil {
		p.typ, err = s.number(ctx, m.typ)
	}
	return p, err
}

// forget deletes all findings, so that the new declarations apply to all stored messages.
func (s *session) forget(ctx context.Context, tx pgx.Tx) error {
	for _, table := range []string{"watch_findings", "watch_marks", "watch_unexpected"} {
		if _, err := tx.Exec(ctx, "DELETE FROM troupe."+table+" WHERE flow = $1", s.flow); err != nil {
			return err
		}
	}
	var sent struct{ topics, types, quiet []int32 }
	for p := range s.sent {
		sent.topics, sent.types = append(sent.topics, p.topic), append(sent.types, p.typ)
	}
	for name, id := range s.names {
		if s.quiet(name) {
			sent.quiet = append(sent.quiet, id)
		}
	}
	_, err := tx.Exec(ctx, countUnexpected, pgx.NamedArgs{
		"flow": s.flow, "topics": sent.topics, "types": sent.types, "quiet": append([]int32{}, sent.quiet...),
	})
	return err
}

// quiet reports whether any message may be on a topic: dead letters are copies, and another flow may send more than this flow
// consumes.
func (s *session) quiet(topic string) bool {
	t, err := topics.Parse(topic)
	return err == nil && (t.Kind == topics.DeadLetters || t.Hop.Flow() != s.cfg.Flow)
}

// loadPlaces loads the offset of each partition, or finds the offset at which a new one is begun.
func (s *session) loadPlaces(ctx context.Context) error {
	s.places = make(map[partition]*standing)
	var fresh []partition
	const load = `SELECT next FROM troupe.watch_offsets WHERE flow = $1 AND topic = $2 AND topic_id = $3 AND partition = $4`
	for p, id := range s.seen {
		topic, err := s.number(ctx, p.topic)
		if err != nil {
			return err
		}
		at := &standing{id: id, topic: topic, quiet: s.quiet(p.topic)}
		s.places[p] = at
		err = s.cfg.Pool.QueryRow(ctx, load, s.flow, topic, id, p.partition).Scan(&at.next)
		if errors.Is(err, pgx.ErrNoRows) {
			fresh = append(fresh, p)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("offsets: %w", err)
		}
		at.stored = at.next
	}
	from, err := s.beginnings(ctx, fresh)
	if err != nil || len(fresh) == 0 {
		return err
	}
	var m moves
	for _, p := range fresh {
		at := s.places[p]
		at.next, at.stored = from[p], from[p]
		m.add(p, at)
	}
	_, err = s.cfg.Pool.Exec(ctx, insertOffsets, pgx.NamedArgs{
		"flow": s.flow, "topics": m.topics, "ids": m.ids, "partitions": m.partitions, "next": m.to,
	})
	return err
}

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
