package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// ownTable is the relay's own outbox table, which needs no mapping.
const ownTable = "troupe.outbox"

// A mappedTable is an outbox in a table other than troupe.outbox, whose rows a mapping turns into messages.
type mappedTable struct {
	schema, name string
	mapping      *mapping.Mapping
	shard        atomic.Int32 // number of its lease; 0: not known yet
	oid          uint32       // by which the table is recognised in the log after it was renamed
	asText       bool         // the server sends the rows of the log as text, see mapping.Table.AsText; once true, it stays true
	maxKept      int          // maxKeptBytes; tests lower it
	swept        sweepProgress
}

func newMappedTable(name string, m *mapping.Mapping) (*mappedTable, error) {
	schema, table, ok := strings.Cut(name, ".")
	if !ok || schema == "" || table == "" {
		return nil, fmt.Errorf("table %q: want schema.table", name)
	}
	return &mappedTable{schema: schema, name: table, mapping: m, maxKept: maxKeptBytes}, nil
}

func (t *mappedTable) String() string { return t.schema + "." + t.name }

func (t *mappedTable) identifier() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

// args adds the table's name to others.
func (t *mappedTable) args(others pg.Args) pg.Args {
	if others == nil {
		others = pg.Args{}
	}
	others["table"] = t.String()
	return others
}

// claim returns the number of the table's lease, and gives a new table a number. A relay calls it before each attempt to take the lease: if
// the database was set back to an earlier state, the table may have no number any more, and another table may get its former number.
func (t *mappedTable) claim(ctx context.Context, db querier) (shard int, err error) {
	for {
		err := db.QueryRow(ctx, claimMappedTable, t.args(nil)).Scan(&shard)
		if errors.Is(err, pgx.ErrNoRows) { // another relay inserted it at the same moment
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("claim table %s: %w", t, err)
		}
		t.shard.Store(int32(shard))
		return shard, nil
	}
}

// open checks that the table fits the mapping, and that no failed rows belong to a table that no longer exists. Then it creates the
// publication if there is none. obstacle calls it before a slot can be created, since a slot cannot stream rows that were written before
// its publication existed.
func (t *mappedTable) open(ctx context.Context, r *Relay) error {
	if err := t.keepsFailures(ctx, r); err != nil {
		return err
	}
	columns, err := t.columns(ctx, r)
	if err != nil {
		return err
	}
	table, err := t.mapping.Bind(columns)
	if err != nil {
		return fmt.Errorf("table %s: %w", t, err)
	}
	t.asText = t.asText || table.AsText()
	var inherits, there bool
	if err := r.pool.QueryRow(ctx, mapping.InheritsSQL, t.identifier()).Scan(&inherits); err != nil {
		return fmt.Errorf("look for tables that inherit from table %s: %w", t, err)
	}
	if inherits {
		return fmt.Errorf("table %s: %w", t, mapping.ErrInherits)
	}
	err = r.pool.QueryRow(ctx, "SELECT $1::text::regclass::oid, EXISTS (SELECT FROM pg_publication WHERE pubname = $2)",
		t.identifier(), r.cfg.Publication).Scan(&t.oid, &there)
	if err != nil || there {
		return err
	}
	if err := t.refuseOlderSlot(ctx, r); err != nil {
		return err
	}
	create := fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		pgx.Identifier{r.cfg.Publication}.Sanitize(), t.identifier())
	if _, err := r.pool.Exec(ctx, create); err != nil {
		return fmt.Errorf("create the publication, or let the table's owner do it: %s: %w", create, err)
	}
	r.cfg.Log.Info().Str("publication", r.cfg.Publication).Stringer("table", t).Msg("publication created")
	return nil
}

// refuseOlderSlot returns an error if the relay would take over the slot, see takeOver, with a publication that it creates now. The slot has no
// rows for that publication that were written before: the server then ends the stream, or from Postgres 18 on leaves the rows out.
func (t *mappedTable) refuseOlderSlot(ctx context.Context, r *Relay) error {
	slot, err := r.readSlot(ctx, r.pool)
	if err != nil || !slot.there || slot.walStatus == "lost" || r.foreign(slot) != nil {
		return err
	}
	var streamed bool
	err = r.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM troupe.mapped_tables WHERE name = $1 AND system_id <> '')", t.String()).Scan(&streamed)
	if err != nil || streamed { // after the loss of its publication a relay creates the slot again
		return err
	}
	if err := r.checkSlotOwner(ctx, r.pool); err != nil {
		return err
	}
	return fmt.Errorf("slot %[1]s exists, and publication %[2]s does not. To create it now is no remedy: slot %[1]s has no rows for publication %[2]s "+
		"that were written before the publication is created. Configure the publication with which the slot was read, or drop the slot, and the relay "+
		"publishes the rows that table %[3]s holds; rows that are in the slot alone are lost then: SELECT pg_drop_replication_slot(%[4]s)",
		r.cfg.Slot, r.cfg.Publication, t, literal(r.cfg.Slot))
}

// setSource sets the source of a message that has an id and no source. An id that is no unique UUID, such as a number, may also be the id
// of an event of another table. For such an id the source names the table, so that consumers can tell the two events apart.
func (t *mappedTable) setSource(m *mapping.Message, service string) {
	switch {
	case m.ID == "" || m.Source != "":
	case m.Identity() == m.ID:
		m.Source = service
	default:
		m.Source = service + "/" + t.String()
	}
}

// columns reads the table's columns from the catalog.
func (t *mappedTable) columns(ctx context.Context, r *Relay) ([]mapping.Column, error) {
	rows, err := r.pool.Query(ctx, mapping.ColumnsSQL, t.identifier())
	if err != nil {
		return nil, fmt.Errorf("columns of table %s: %w", t, err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mapping.Column])
	if err != nil {
		return nil, fmt.Errorf("columns of table %s: %w", t, err)
	}
	return columns, nil
}

// A boundTable makes items of rows with one set of columns, as one Relation message of the log or one query describes them.
type boundTable struct {
	columns []mapping.Column
	table   *mapping.Table
	xid     bool // rows contain their transaction id
	mapped  *mappedTable
	service string
}

// bind finds the columns that the mapping names, and returns the boundTable of rows with these columns. It returns an error if a column is
// missing, or has a type that the mapping cannot use.
func (t *mappedTable) bind(r *Relay, columns []mapping.Column) (*boundTable, error) {
	table, err := t.mapping.Bind(columns)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t, err)
	}
	return &boundTable{columns, table, t.mapping.Config().XID != "", t, r.cfg.Service}, nil
}

const firstOwnType = 16384 // lower OIDs are of types that every server has

// bindRelation does the same as bind for the columns that a Relation message describes. The table had these columns when the row was
// written.
func (t *mappedTable) bindRelation(ctx context.Context, r *Relay, rel *wal.Relation) (*boundTable, error) {
	columns := make([]mapping.Column, len(rel.Columns))
	for n, c := range rel.Columns {
		columns[n] = mapping.Column{Name: c.Name, Type: c.Type, Modifier: c.Modifier}
	}
	if err := t.resolveTypes(ctx, r, columns); err != nil {
		return nil, err
	}
	bound, err := t.bind(r, columns)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnbound, err)
	}
	return bound, nil
}

// resolveTypes replaces the types of domains and enums by the types that mapping.Column requires. The log has only the OIDs of such types,
// so resolveTypes reads the catalog. A type that the catalog no longer has stays as it is.
func (t *mappedTable) resolveTypes(ctx context.Context, r *Relay, columns []mapping.Column) error {
	types, modifiers := make([]uint32, len(columns)), make([]int32, len(columns))
	own := false
	for n, c := range columns {
		types[n], modifiers[n] = c.Type, c.Modifier
		own = own || c.Type >= firstOwnType
	}
	if !own {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	rows, err := r.pool.Query(ctx, mapping.TypesSQL, types, modifiers)
	if err != nil {
		return fmt.Errorf("types of table %s: %w", t, err)
	}
	var n int64
	var found mapping.Column
	_, err = pgx.ForEachRow(rows, []any{&n, &found.Type, &found.Modifier}, func() error {
		columns[n-1].Type, columns[n-1].Modifier = found.Type, found.Modifier
		return nil
	})
	if err != nil {
		return fmt.Errorf("types of table %s: %w", t, err)
	}
	return nil
}

// A mappedRow is a row of a mapped table, with the message that the mapping made of it, or with the mapping's error.
type mappedRow struct {
	mapping.Row
	message mapping.Message
	err     error
}

// item makes the item of a row, by the mapping. It does not copy the values. If the message has no timestamp, at is the row's creation
// time: in a stream the time of the commit, in a sweep the time of the read.
func (b *boundTable) item(values []mapping.Value, at time.Time) item {
	row := &mappedRow{Row: mapping.Row{Columns: b.columns, Values: values}}
	row.message, row.err = b.table.Message(values)
	i := row.item(b.mapped, b.service)
	if i.row.CreatedAt.IsZero() {
		i.row.CreatedAt = at
	}
	return i
}

// item makes the item of m, with the topic, key, id and type of its message. It sets the message's source, and makes a topic ASCII that is not
// UTF-8.
func (m *mappedRow) item(t *mappedTable, service string) item {
	if !utf8.ValidString(m.message.Topic) { // the row is parked later; until then its topic is in a metadata request, which needs UTF-8
		m.message.Topic = asciiText(m.message.Topic)
	}
	t.setSource(&m.message, service)
	return item{
		row: outboxrow.Row{
			ID: m.id(), Topic: m.message.Topic, KeyBytes: m.message.Key, Type: m.message.Type,
			CreatedAt: m.message.Timestamp,
		},
		key:    m.message.Key,
		mapped: m,
	}
}

// id returns the event's id as a UUID. A row without an event id is never published, but recorded as failed. Its id is a digest of its
// columns, so that it is the same in the log and in a sweep. Rows whose columns are all equal are one message.
func (m *mappedRow) id() uuid.UUID {
	if id, err := uuid.Parse(m.message.EventID); err == nil {
		return id
	}
	if m.message.EventID != "" {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(m.message.EventID))
	}
	h := sha256.New()
	for _, v := range m.Values {
		_, _ = fmt.Fprintf(h, "%t %d ", v.Data == nil, len(v.Data)) // a hash never fails
		_, _ = h.Write(v.Data)
	}
	return uuid.UUID(h.Sum(nil)[:16])
}

// kafkaRecord makes the Kafka record of the row's message. If the mapping failed, it returns the mapping's error.
func (m *mappedRow) kafkaRecord() (*kgo.Record, error) {
	if m.err != nil {
		return nil, m.err
	}
	r := kafka.Record(m.message.Message)
	r.Partition = m.message.Partition
	r.Timestamp = m.message.Timestamp
	return r, nil
}

// A placedPartitioner sends a record that names its partition to that partition. It leaves other records to the partitioner that it wraps.
type placedPartitioner struct{ kgo.Partitioner }

func (p placedPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return placedTopic{p.Partitioner.ForTopic(topic)}
}

type placedTopic struct{ kgo.TopicPartitioner }

func (p placedTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

func (p placedTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, n)
}

// OnNewBatch forwards the call to the wrapped partitioner, which then chooses another partition for records without a key.
func (p placedTopic) OnNewBatch() {
	if b, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}

// errPartition means that the topic does not have the partition that a row names.
var errPartition = errors.New("the topic has no such partition")

// fits returns errPartition if the topic does not have the partition. If the broker does not return the topic's partitions, fits returns
// the broker's error. prepare calls it (through complete) before anything is sent.
// Otherwise the client would fail only the row that names this partition, and would send later rows of its key.
func (s *sender) fits(ctx context.Context, topic string, partition int32) error {
	if partition < s.partitions[topic] {
		return nil
	}
	found, err := s.list(ctx, []string{topic})
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	details, there := found[topic]
	if !there {
		details.Err = kerr.UnknownTopicOrPartition
	}
	if details.Err != nil { // a broker may not know the topic yet, or may not have its partitions now
		return fmt.Errorf("look for the partitions of topic %s: %w", topic, details.Err)
	}
	if s.partitions == nil {
		s.partitions = make(map[string]int32)
	}
	s.partitions[topic] = int32(len(details.Partitions))
	if partition >= s.partitions[topic] {
		return fmt.Errorf("%w: %d of %s, which has %d", errPartition, partition, topic, s.partitions[topic])
	}
	return nil
}
