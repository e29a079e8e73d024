package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/relay/mapping"
)

// sweepMapped publishes the rows that stand in a mapped table and that its new slot will not tell. With a column of
// transaction ids these are those that are not known to be published; without, all that there are: repeats, by id.
func (r *Relay) sweepMapped(idle, term context.Context, db *server, p *publisher, st standing) (standing, error) {
	source := &mappedSweep{relay: r, db: db, lease: p.lease, ledger: r.newLedger(db, p.lease), st: st, term: term}
	defer source.close()
	if err := source.ledger.load(idle); err != nil {
		return st, err
	}
	if r.mapped.mapping.Config().XID == "" {
		r.cfg.Log.Warn().Stringer("table", r.mapped).
			Msg("without table.field.xid nothing says which rows are published: all that are in the table go out, perhaps again")
	}
	p.source = source
	if err := r.publish(idle, term, p); err != nil && !errors.Is(err, errSwept) || idle.Err() != nil {
		return st, err
	}
	st.published, st.sweep = st.sweep, nil
	return st, r.store(idle, db, p.lease, st)
}

// A mappedSweep is the source of rows of a mapped table, read once, in one statement. After an error it goes on behind the last
// batch that was settled; another relay, or this one when it is started again, begins at the first row.
type mappedSweep struct {
	relay  *Relay
	db     *server
	lease  *lease
	ledger ledger
	st     standing
	term   context.Context // of the statement: it outlives the claims

	conn  *pgxpool.Conn
	rows  pgx.Rows
	bound *boundTable
	now   []item // of the last claim
	last  rowPlace
}

// A sweepProgress says how far a table was swept for one slot.
type sweepProgress struct {
	sweep string              // the snapshot that was stored with the slot
	at    map[string]rowPlace // of the last settled row, by partition; under "" where the table is read in an order
}

// A rowPlace is where a row stands in a sweep, as texts of Postgres.
type rowPlace struct {
	order          *string // value of the column that the table is read by
	partition, tid string
}

// claim gives what is left of the last claim, then the next rows.
func (m *mappedSweep) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	if items := m.left(); len(items) > 0 {
		return items, nil
	}
	m.settled()
	if m.rows == nil {
		if err := m.open(ctx); err != nil {
			m.close()
			return nil, fmt.Errorf("read table %s: %w", m.relay.mapped, err)
		}
	}
	m.now = make([]item, 0, m.relay.cfg.Batch)
	for bytes := 0; len(m.now) < m.relay.cfg.Batch && bytes < claimBytes && m.rows.Next(); {
		values := make([]mapping.Value, len(m.bound.columns))
		raws := m.rows.RawValues()
		m.last = placeOfRow(raws[len(values):])
		for n, raw := range raws[:len(values)] {
			if raw != nil { // what is shown is good until the next row
				values[n].Data = append(make([]byte, 0, len(raw)), raw...)
			}
			values[n].Binary = m.rows.FieldDescriptions()[n].Format == pgx.BinaryFormatCode
			bytes += len(raw)
		}
		m.now = append(m.now, m.bound.item(values, time.Now()))
	}
	items := m.left()
	if len(items) > 0 {
		return items, nil
	}
	if err := m.rows.Err(); err != nil {
		m.close()
		return nil, fmt.Errorf("read table %s: %w", m.relay.mapped, err)
	}
	return nil, errSwept
}

func (m *mappedSweep) left() (items []*item) {
	for n := range m.now {
		if !m.now[n].settled {
			items = append(items, &m.now[n])
		}
	}
	return items
}

// settled remembers the last row of a batch that is published or recorded.
func (m *mappedSweep) settled() {
	if len(m.now) == 0 {
		return
	}
	m.now = nil
	key := ""
	if m.order() == "" {
		key = m.last.partition
	}
	m.relay.mapped.swept.at[key] = m.last
}

// order is the column that the table is read by: the position, else the timestamp, where the mapping names one.
func (m *mappedSweep) order() string {
	cfg := m.relay.mapped.mapping.Config()
	return cmp.Or(cfg.Position, cfg.Timestamp)
}

func placeOfRow(raws [][]byte) (p rowPlace) {
	if raws[0] != nil {
		order := string(raws[0])
		p.order = &order
	}
	p.partition, p.tid = string(raws[1]), string(raws[2])
	return p
}

// sweepSettings make a scan without an order read each partition from its first block to its last.
const sweepSettings = `
SET synchronize_seqscans = off;
SET max_parallel_workers_per_gather = 0`

// open asks for all rows that are not settled, in one statement.
func (m *mappedSweep) open(ctx context.Context) (err error) {
	t := m.relay.mapped
	if t.swept.sweep != *m.st.sweep {
		t.swept = sweepProgress{*m.st.sweep, make(map[string]rowPlace)}
	}
	columns, err := t.columns(ctx, m.relay)
	if err != nil {
		return err
	}
	if m.bound, err = t.bind(m.relay, columns); err != nil {
		return err
	}
	query, args := m.query(columns)
	if m.conn, err = m.db.Acquire(ctx); err != nil {
		return err
	}
	if _, err = m.conn.Exec(ctx, sweepSettings); err != nil {
		return err
	}
	m.rows, err = m.conn.Query(m.term, query, args)
	return err
}

func (m *mappedSweep) query(columns []mapping.Column) (string, pgx.NamedArgs) {
	t := m.relay.mapped
	names := make([]string, len(columns))
	for n, c := range columns {
		names[n] = pgx.Identifier{c.Name}.Sanitize()
	}
	order := "NULL::text"
	if m.order() != "" {
		order = "o." + pgx.Identifier{m.order()}.Sanitize()
	}
	query := "SELECT " + strings.Join(names, ", ") + ", " + order + "::text, tableoid::oid::text, ctid::text FROM " + t.identifier() +
		" AS o WHERE " + t.swept.rest(order)
	args := pgx.NamedArgs{}
	if xid := t.mapping.Config().XID; xid != "" {
		xid = pgx.Identifier{xid}.Sanitize()
		seen := func(snapshot string) string { // also where another cluster's xid was restored
			return fmt.Sprintf("(pg_visible_in_snapshot(%[1]s, %[2]s) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(%[1]s, o.xmin), %[2]s))",
				xid, snapshot)
		}
		query += " AND " + seen("@sweep::text::pg_snapshot") +
			" AND (@published::text IS NULL OR NOT " + seen("@published::text::pg_snapshot") + ")"
		args["sweep"], args["published"] = m.st.sweep, m.st.published
	}
	if m.order() != "" {
		query += " ORDER BY " + order + ", o.tableoid, o.ctid" // qualified: bare names would be those of the output, which are texts
	}
	return query, args
}

// rest is the condition of rows that are not settled. Rows that were committed since the first statement may be among them
// or not: the slot streams those.
func (s sweepProgress) rest(order string) string {
	if at, ordered := s.at[""]; ordered {
		here := fmt.Sprintf("(tableoid, ctid) > ('%s', '%s')", at.partition, at.tid)
		if at.order == nil { // null comes last
			return "(" + order + " IS NULL AND " + here + ")"
		}
		value := "'" + strings.ReplaceAll(*at.order, "'", "''") + "'"
		return fmt.Sprintf("(%[1]s IS NULL OR %[1]s > %[2]s OR %[1]s = %[2]s AND %[3]s)", order, value, here)
	}
	conditions := []string{"true"}
	for partition, at := range s.at {
		conditions = append(conditions, fmt.Sprintf("(tableoid <> '%s' OR ctid > '%s')", partition, at.tid))
	}
	return strings.Join(conditions, " AND ")
}

func (m *mappedSweep) close() {
	if m.conn == nil {
		return
	}
	conn := m.conn.Hijack() // rows that nobody reads would be read to their end
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is given up in any case
	m.conn, m.rows = nil, nil
}

func (m *mappedSweep) remove(_ context.Context, acked []*item) error {
	for _, i := range acked {
		i.settled = true
	}
	return nil
}

func (m *mappedSweep) record(ctx context.Context, troubled []trouble) error {
	if err := m.relay.recordTrouble(ctx, m.db, m.lease, troubled); err != nil {
		return err
	}
	for _, t := range troubled {
		m.ledger.note(t.item)
		t.item.settled = true
	}
	return nil
}

func (m *mappedSweep) behind(i *item) bool { return m.ledger.behind(i) }

// rest returns at once: there are rows, or it is over.
func (m *mappedSweep) rest(context.Context, time.Duration) bool { return false }
