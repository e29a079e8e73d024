package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/relay/mapping"
)

// sweepMapped publishes the rows that stand in a mapped table and that its new slot will not tell. With a column of
// transaction ids these are those that are not known to be published; without, all that there are: repeats, by id.
func (r *Relay) sweepMapped(idle, term context.Context, p *publisher, st standing) (standing, error) {
	source := &mappedSweep{relay: r, lease: p.lease, ledger: r.newLedger(p.lease), st: st, term: term}
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
	return st, r.store(idle, p.lease, st)
}

// A mappedSweep is the source of rows of a mapped table, read once, in one statement: nothing orders them so that it could
// be gone on with. It begins anew after an error.
type mappedSweep struct {
	relay  *Relay
	lease  *lease
	ledger ledger
	st     standing
	term   context.Context // of the statement: it outlives the claims

	conn  *pgxpool.Conn
	rows  pgx.Rows
	bound *boundTable
	now   []item // of the last claim
}

// claim gives what is left of the last claim, then the next rows.
func (m *mappedSweep) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	if items := m.left(); len(items) > 0 {
		return items, nil
	}
	if m.rows == nil {
		if err := m.open(ctx); err != nil {
			m.close()
			return nil, fmt.Errorf("read table %s: %w", m.relay.mapped, err)
		}
	}
	m.now = make([]item, 0, m.relay.cfg.Batch)
	for bytes := 0; len(m.now) < m.relay.cfg.Batch && bytes < claimBytes && m.rows.Next(); {
		values := make([]mapping.Value, len(m.bound.columns))
		for n, raw := range m.rows.RawValues() {
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

// open asks for all rows at once: in the order of the position, else of the timestamp, where the mapping names one.
func (m *mappedSweep) open(ctx context.Context) (err error) {
	t := m.relay.mapped
	columns, err := t.columns(ctx, m.relay)
	if err != nil {
		return err
	}
	if m.bound, err = t.bind(m.relay, columns); err != nil {
		return err
	}
	names := make([]string, len(columns))
	for n, c := range columns {
		names[n] = pgx.Identifier{c.Name}.Sanitize()
	}
	query := "SELECT " + strings.Join(names, ", ") + " FROM " + t.identifier()
	cfg := t.mapping.Config()
	args := pg.Args{}
	if cfg.XID != "" {
		xid := pgx.Identifier{cfg.XID}.Sanitize()
		query += ` WHERE pg_visible_in_snapshot(` + xid + `, @sweep::text::pg_snapshot)
			AND (@published::text IS NULL OR NOT pg_visible_in_snapshot(` + xid + `, @published::text::pg_snapshot))`
		args["sweep"], args["published"] = m.st.sweep, m.st.published
	}
	for _, order := range []string{cfg.Position, cfg.Timestamp} {
		if order != "" {
			query += " ORDER BY " + pgx.Identifier{order}.Sanitize()
			break
		}
	}
	if m.conn, err = m.relay.cfg.Pool.Acquire(ctx); err != nil {
		return err
	}
	m.rows, err = m.conn.Query(m.term, query, args)
	return err
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
	if err := m.relay.recordTrouble(ctx, m.lease, troubled); err != nil {
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
