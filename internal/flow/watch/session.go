package watch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/register_flow.sql
	registerFlow string
	//go:embed sql/count_unexpected.sql
	countUnexpected string
	//go:embed sql/insert_offsets.sql
	insertOffsets string
)

// errOtherDeclarations reports that the flow is judged by other declarations than the ones of this session. Findings have the numbers of those rules.
var errOtherDeclarations = errors.New("another watcher of the flow has other declarations: run one of them, or wait until its deploy has ended")

// maxNames limits how many names are distinguished, since services choose the names of types freely.
const maxNames = 10_000

// others is the name of all types beyond maxNames.
const others = "(other)"

// A pair is a topic and a type, as numbers of names.
type pair struct{ topic, typ int32 }

// memory holds data that was read from the database.
type memory struct {
	flow      int32
	names     map[string]int32
	days      map[int]bool // days whose slot is assigned to them
	pruneAt   time.Time    // when days past the retention are removed next
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

// lockDeclarations returns errOtherDeclarations unless the flow is judged by the declarations of this session, which no other watcher can change until
// tx ends. A watcher that is being replaced would otherwise judge messages by its own declarations, and the new one would not judge them again.
func (s *session) lockDeclarations(ctx context.Context, tx pgx.Tx) error {
	const ours = `SELECT (declared, answer) IS NOT DISTINCT FROM ($2::jsonb, $3::interval) FROM troupe.watch_flows WHERE flow = $1 FOR SHARE`
	var same bool
	err := tx.QueryRow(ctx, ours, s.flow, string(s.declared), s.cfg.Answer).Scan(&same)
	if err == nil && !same {
		err = errOtherDeclarations
	}
	return err
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
