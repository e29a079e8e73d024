package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/mapping"
)

// sweepMapped publishes the rows of a mapped table that its new slot will not deliver. If the mapping names a column of transaction ids, it
// leaves out rows that the stored snapshot shows to be published. Otherwise it publishes all rows of the table, perhaps again, under the
// same ids.
func (r *Relay) sweepMapped(idle, term context.Context, db *server, p *publisher, st storedState) (storedState, error) {
	source := &mappedSweep{relay: r, db: db, lease: p.lease, ledger: r.newLedger(db, p.lease), st: st, term: term}
	defer source.close()
	if err := source.ledger.loadSwept(idle); err != nil {
		return st, err
	}
	if r.mapped.mapping.Config().XID == "" {
		r.cfg.Log.Warn().Stringer("table", r.mapped).
			Msg("without table.field.xid no column shows which rows are published: all rows of the table are published, perhaps again")
	}
	p.source = source
	if err := r.publish(idle, term, p); err != nil && !errors.Is(err, errSwept) || idle.Err() != nil {
		return st, err
	}
	// The sweep has settled the rows that it found in the table. Another row, committed before the sweep, may have been deleted before the
	// sweep read it. If that row was committed after the slot was created, the slot delivers it, and the stream must not skip it as
	// published. So the stored snapshot is swept.before, which was taken before the slot was created.
	if before := r.mapped.swept.before; before != nil {
		st.published = &before.text
	}
	st.sweep = nil
	return st, r.store(idle, db, p.lease, st)
}

// A mappedSweep is the source of a sweep of a mapped table. It reads the rows with one statement. After an error it runs the statement
// again. With an ordering column, the statement continues at the value that the last settled row has in this column. Rows with this value
// are read again, since not all of them may be settled. Without an ordering column the statement begins at the first row, since rows may
// have moved within the table meanwhile. After a restart, and on another relay, a sweep always begins at the first row.
type mappedSweep struct {
	relay  *Relay
	db     *server
	lease  *lease
	ledger ledger
	st     storedState
	term   context.Context // context of the statement, which runs longer than one claim

	conn      *pgxpool.Conn
	rows      pgx.Rows
	converter *converter // nil: the server converts text
	bound     *boundTable
	now       []item // rows of the last claim
	last      sweepPlace
}

// A sweepProgress records how far the table was swept for one slot of one server process.
type sweepProgress struct {
	server string
	sweep  string // storedState.sweep of the slot
	at     sweepPlace

	before *snapshot             // taken by this relay before it created the slot; nil: another relay did
	both   map[sweptRow]struct{} // settled rows that before does not see: the slot may deliver them too
}

// A sweptRow identifies a row of a table that has a column of transaction ids.
type sweptRow struct {
	id  uuid.UUID
	xid uint64
}

const maxSwept = 100_000 // rows in sweepProgress.both; any other row is published again if the slot delivers it

// addSwept adds a settled row to s.both, if the slot may deliver the row too.
func (s *sweepProgress) addSwept(i *item) {
	xid := i.mapped.message.XID
	if s.before == nil || xid == 0 || s.before.sees(xid) || len(s.both) >= maxSwept {
		return
	}
	if s.both == nil {
		s.both = make(map[sweptRow]struct{})
	}
	s.both[sweptRow{i.row.ID, xid}] = struct{}{}
}

// has reports whether the sweep has settled i, a row that the slot delivers. It knows only the rows that addSwept has stored. For any other row
// it returns false; if the sweep has published that row, the stream publishes it again.
func (s *sweepProgress) has(i *item) bool {
	_, there := s.both[sweptRow{i.row.ID, i.mapped.message.XID}]
	return there
}

// A sweepPlace is the place at which a sweep continues: at rows whose ordering value is at least order. Several rows may have that value.
// If reached is false, the sweep begins at the first row.
type sweepPlace struct {
	reached bool
	order   *string // value of the last settled row in the column that orders the sweep, as Postgres's text; nil: null
}

// claim returns the unsettled rows of the last claim. If there are none, it reads the next rows. It returns errSwept when the table is read
// to its end.
func (m *mappedSweep) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	if items := unsettled(m.now); len(items) > 0 {
		return items, nil
	}
	m.storePlace()
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
		m.last = sweepPlace{reached: true}
		if order := raws[len(values)]; order != nil {
			text := string(order)
			m.last.order = &text
		}
		for n, raw := range raws[:len(values)] {
			if raw != nil { // raw values are valid until the next row
				values[n].Data = append(make([]byte, 0, len(raw)), raw...)
			}
			values[n].Binary = m.rows.FieldDescriptions()[n].Format == pgx.BinaryFormatCode
			bytes += len(raw)
		}
		if m.converter != nil {
			if err := m.converter.values(m.bound, values); err != nil {
				m.now = nil
				m.close()
				return nil, fmt.Errorf("read table %s: %w", m.relay.mapped, err)
			}
		}
		i := m.bound.item(values, time.Now())
		i.commitRow = i.mapped.sweepOrder(m.relay.mapped, math.MaxInt64)
		m.now = append(m.now, i)
	}
	if len(m.now) > 0 {
		return unsettled(m.now), nil
	}
	err := m.rows.Err()
	if err == nil {
		return nil, errSwept
	}
	m.close()
	if unconvertible(err) && !m.relay.asStored {
		m.relay.readInDatabaseEncoding(err)
		return m.claim(ctx, 0)
	}
	return nil, fmt.Errorf("read table %s: %w", m.relay.mapped, err)
}

// storePlace stores the place of the last row of the last claim, as the place at which the sweep continues. claim calls it when all rows of
// the last claim are published or recorded.
func (m *mappedSweep) storePlace() {
	if len(m.now) > 0 && m.order() != "" {
		m.relay.mapped.swept.at = m.last
	}
	m.now = nil
}

// order returns the column that orders the sweep: the position, else the timestamp; "" if the mapping names neither.
func (m *mappedSweep) order() string {
	cfg := m.relay.mapped.mapping.Config()
	return cmp.Or(cfg.Position, cfg.Timestamp)
}

// sweepSettings make a scan without an order read each partition from its first block to its last. datestyle is set since a sweepPlace is
// text. In style ISO a timestamptz has its UTC offset. Other styles write an abbreviation such as IST, which is ambiguous.
const sweepSettings = `
SET synchronize_seqscans = off;
SET max_parallel_workers_per_gather = 0;
SET datestyle = ISO`

// open starts the statement that reads the rows of the table, from swept.at on. For another slot or server process it begins a new
// sweepProgress.
func (m *mappedSweep) open(ctx context.Context) (err error) {
	t := m.relay.mapped
	if t.swept.sweep != *m.st.sweep || t.swept.server != m.db.id { // the snapshot of another server may have the same text
		t.swept = sweepProgress{server: m.db.id, sweep: *m.st.sweep}
	}
	columns, err := t.columns(ctx, m.relay)
	if err != nil {
		return err
	}
	if m.bound, err = t.bind(m.relay, columns); err != nil {
		return err
	}
	if m.conn, err = m.db.Acquire(ctx); err != nil {
		return err
	}
	if _, err = m.conn.Exec(ctx, sweepSettings); err != nil {
		return err
	}
	var formats []any // nil: pgx chooses the format of each column
	if m.bound.table.AsText() {
		if _, err = m.conn.Exec(ctx, mapping.TextSettings); err != nil {
			return err
		}
		formats = []any{pgx.QueryResultFormats{pgx.TextFormatCode}}
	}
	query, named := m.query(columns)
	query, args, err := named.RewriteQuery(ctx, m.conn.Conn(), query, nil)
	if err != nil {
		return err
	}
	if m.relay.asStored {
		if m.converter, err = m.relay.newConverter(ctx, m.db); err != nil {
			return err
		}
		// The statement, whose names are in UTF-8, is prepared first.
		if _, err = m.conn.Conn().Prepare(ctx, sweepName, query); err != nil {
			return err
		}
		if err = useDatabaseEncoding(ctx, m.conn.Conn()); err != nil {
			return err
		}
		query = sweepName
	}
	m.rows, err = m.conn.Query(m.term, query, append(formats, args...)...)
	return err
}

const sweepName = "troupe_sweep"

// query returns the statement that reads the rows from swept.at on, and its arguments.
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
	query := "SELECT " + strings.Join(names, ", ") + ", " + order + "::text FROM " + t.identifier() + " AS o WHERE " + t.swept.at.remaining(order)
	args := pgx.NamedArgs{}
	if xid := t.mapping.Config().XID; xid != "" {
		xid = pgx.Identifier{xid}.Sanitize()
		seen := func(snapshot string) string { // the second part also finds rows whose xid was restored from another cluster
			return fmt.Sprintf("(pg_visible_in_snapshot(%[1]s, %[2]s) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(%[1]s, o.xmin), %[2]s))",
				xid, snapshot)
		}
		// Whether a row without a transaction id is published is not known: it is read, and perhaps published again.
		query += " AND (" + xid + " IS NULL OR " + seen("@sweep::text::pg_snapshot") +
			" AND (@published::text IS NULL OR NOT " + seen("@published::text::pg_snapshot") + "))"
		args["sweep"], args["published"] = m.st.sweep, m.st.published
	}
	if m.order() != "" {
		query += " ORDER BY " + order + ", o.tableoid, o.ctid" // unqualified names would refer to the output, which is text
	}
	return query, args
}

// remaining returns the condition for the rows that are still to be read. A row that was committed after the sweep began may be among them
// or not, since the slot delivers it.
func (p sweepPlace) remaining(order string) string {
	switch {
	case !p.reached:
		return "true"
	case p.order == nil: // nulls sort last
		return order + " IS NULL"
	}
	return fmt.Sprintf("(%[1]s IS NULL OR %[1]s >= '%[2]s')", order, strings.ReplaceAll(*p.order, "'", "''"))
}

func (m *mappedSweep) close() {
	if m.conn == nil {
		return
	}
	closeConn(m.conn.Hijack()) // closing only the rows would read them all to the end
	m.conn, m.rows = nil, nil
}

// remove settles acknowledged rows. The relay does not delete them from a mapped table.
func (m *mappedSweep) remove(_ context.Context, acked []*item) error {
	for _, i := range acked {
		i.settled = true
		m.relay.mapped.swept.addSwept(i)
	}
	return nil
}

// recordFailures records failures, and settles their rows.
func (m *mappedSweep) recordFailures(ctx context.Context, failures []failure) error {
	if err := m.relay.recordFailures(ctx, m.db, m.lease, failures); err != nil {
		return err
	}
	for _, t := range failures {
		t.item.commitRow = t.item.mapped.sweepOrder(m.relay.mapped, math.MinInt64)
		m.ledger.addFailure(t.item)
		t.item.settled = true
		m.relay.mapped.swept.addSwept(t.item)
	}
	return nil
}

func (m *mappedSweep) behind(i *item) bool { return m.ledger.behind(i) }

// awaitRows returns at once: claim found more rows, or the sweep is over.
func (m *mappedSweep) awaitRows(context.Context, time.Duration) bool { return false }
