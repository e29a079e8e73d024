//go:build unix

package relay_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// model has the servers that all histories share.
type model struct {
	server  *devstack.Postgres
	brokers []string
	flow    string
	runs    atomic.Int32

	prepares bool // the server has prepared transactions
}

// history is one run of a plan, with the numbers of rows that it committed.
type history struct {
	*stage
	rt        *rapid.T
	plan      modelPlan
	source    string
	child     *process // nil between two relays
	children  int
	frozen    bool
	open      map[int]*openWrite // by key
	committed map[int]int        // rows by key; a row's payload is its number within its key
	bad       int                // rows that can never be published
	healed    bool               // a step allows exactly-once to repeat rows
	roleURL   string

	model    *model
	admin    *pgxpool.Pool
	database string
	role     string
	image    *image          // nil: none was taken
	lost     map[string]bool // payloads of rows that need not be published: the database was set back, or they were deleted without a slot
	deleted  map[string]bool // payloads of rows that are no longer in their mapped table
	changes  int             // changes of the mapped table
	other    *stage          // another database that the process publishes; nil: there is none
	others   int             // rows written to it
	slot     string          // "": the default
}

// openWrite is a transaction that a step began and a later one ends.
type openWrite struct {
	tx        pgx.Tx
	rows, bad int
	prepared  bool
}

// endTx ends the transaction by COMMIT or ROLLBACK.
func (h *history) endTx(w *openWrite, key int, how string) {
	if w.prepared {
		h.exec(how + " PREPARED '" + h.gid(key) + "'")
		return
	}
	_, err := w.tx.Exec(context.Background(), how)
	require.NoError(h.rt, err)
	_ = w.tx.Rollback(context.Background()) // gives the connection back
}

func (h *history) gid(key int) string { return fmt.Sprintf("%s-%d", h.database, key) }

func (h *history) prepareTx(tx pgx.Tx, key int) {
	_, err := tx.Exec(context.Background(), "PREPARE TRANSACTION '"+h.gid(key)+"'")
	require.NoError(h.rt, err)
	_ = tx.Rollback(context.Background()) // gives the connection back
}

func (m *model) run(t *testing.T, rt *rapid.T, plan modelPlan) {
	number := m.runs.Add(1)
	name := fmt.Sprintf("model_%s_%d", strings.ReplaceAll(m.flow, "-", "_"), number)
	h := &history{
		stage: &stage{t: t, brokers: m.brokers, flow: m.flow}, rt: rt, plan: plan, source: plan.Source,
		open: map[int]*openWrite{}, committed: map[int]int{}, lost: map[string]bool{}, deleted: map[string]bool{},
		model: m, admin: modelPool(t, m.server.URL("")), database: name, role: name + "_relay",
	}
	h.onServer(fmt.Sprintf("CREATE DATABASE %s TEMPLATE template0 ENCODING '%s' LOCALE 'C'", name, plan.Encoding))
	h.onServer(fmt.Sprintf("CREATE ROLE %s LOGIN REPLICATION PASSWORD 'model'", h.role))
	defer func() {
		h.end()
		h.drop()
		h.onServer("DROP ROLE " + h.role)
		h.admin.Close()
	}()
	h.applySettings()
	require.NoError(rt, migrations.Up(context.Background(), m.server.URL(name)))
	h.pool = modelPool(t, m.server.URL(name))
	h.prepare()
	config, err := pgxpool.ParseConfig(m.server.URL(name))
	require.NoError(rt, err)
	c := config.ConnConfig
	h.roleURL = fmt.Sprintf("postgres://%s:model@%s:%d/%s", h.role, c.Host, c.Port, name)
	h.topic = fmt.Sprintf("%s.h%d.commands", m.flow, number)
	h.provision(kafka.Topic{Name: h.topic, Partitions: 2, Config: map[string]string{"max.message.bytes": "20000"}})
	if plan.Other {
		h.makeOther()
	}
	h.start()
	for _, step := range plan.Steps {
		h.do(step)
	}
	h.finish()
}

// grantTo grants the role the documented rights in a database.
func (h *history) grantTo(s *stage) {
	s.exec(grants.Usage(h.role))
	for _, part := range []grants.Part{grants.Relay, grants.MappedRelay} {
		for _, g := range grants.Of(part) {
			s.exec(g.To(h.role))
		}
	}
}

// prepare grants the rights, and makes the mapped table.
func (h *history) prepare() {
	h.grantTo(h.stage)
	if isMapped(h.source) {
		h.makeTables()
	}
}

// publication returns the name of the publication that the relay streams.
func (h *history) publication() string {
	if isMapped(h.source) {
		return "troupe_events"
	}
	return "troupe_outbox"
}

func (h *history) table() string {
	if isMapped(h.source) {
		return "public.events"
	}
	return "troupe.outbox"
}

// start starts a relay in a process of its own.
func (h *history) start() {
	h.children++
	c := childConfig{
		URL: h.roleURL, Holder: "relay-" + strconv.Itoa(h.children), Lease: 1500 * time.Millisecond, Source: relay.WAL,
		Delivery: relay.AtLeastOnce, UnknownTopic: 300 * time.Millisecond, Slot: h.slot,
	}
	if isExact(h.source) {
		c.Exactly = 10 * time.Second
	}
	switch h.source {
	case fromPoll:
		c.Source = relay.Poll
	case fromShards:
		c.Source, c.Shards = relay.Poll, 3
	case fromMappedTable, fromMappedOnce:
		c.Table, c.Publication, c.Mapping = h.table(), h.publication(), h.mapping()
		if h.plan.Second {
			c.Second = secondTable
		}
	}
	if h.other != nil {
		c.Other = h.roleURL + "_other"
	}
	h.child = h.spawn(c)
	h.await("the relay's process", func() (bool, error) { return strings.Contains(h.child.said.String(), childStarted), nil })
}

// end stops the relay and ends open transactions. It is safe to call after any failure.
func (h *history) end() {
	if child := h.child; child != nil {
		_ = child.cmd.Process.Kill()
		child.wait(waitLimit)
	}
	for key, w := range h.open {
		if w.prepared {
			_, _ = h.pool.Exec(context.Background(), "ROLLBACK PREPARED '"+h.gid(key)+"'")
		}
		_ = w.tx.Rollback(context.Background())
	}
	if h.pool != nil {
		h.pool.Close()
	}
}

func (h *history) do(step modelStep) {
	switch step.Kind {
	case "write":
		h.write(step)
	case "open":
		h.openTx(step)
	case "close":
		h.closeTx(step)
	case "too large":
		h.insertBad(step.Key, h.topic, tooLarge())
	case "unknown topic":
		h.insertBad(step.Key, h.topic+".unknown", "never")
	case "not UTF-8":
		h.insertOdd(modelKeys[step.Key])
	case "discard":
		h.repair(h.desk().Discard)
	case "retry":
		h.repair(h.desk().Retry)
	case "replay":
		h.replay()
	case "image":
		h.takeImage()
	case "set back":
		h.setBack()
	case "write other":
		h.writeOther()
	case "settle":
		h.awaitMarker()
	case "cut":
		h.interrupts()
		h.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user`)
	case "kill":
		h.interrupts()
		h.replaceRelay(syscall.SIGKILL)
	case "stop":
		h.replaceRelay(syscall.SIGTERM)
	case "change source":
		h.healed = h.healed || h.source != step.Mode
		h.source = step.Mode
		h.replaceRelay(syscall.SIGTERM)
	case "change delivery":
		h.healed = true
		h.source = map[string]string{fromMappedTable: fromMappedOnce, fromMappedOnce: fromMappedTable}[h.source]
		h.replaceRelay(syscall.SIGTERM)
	case "slot name":
		h.healed = true
		h.slot = map[string]string{"": h.database + "_next", h.database + "_next": ""}[h.slot]
		h.replaceRelay(syscall.SIGTERM)
	case "freeze":
		h.interrupts()
		h.child.signal(syscall.SIGSTOP)
		h.frozen = true
	case "thaw":
		h.child.signal(syscall.SIGCONT)
		h.frozen = false
	case "pause":
		h.setPause(h.desk().Pause)
	case "resume":
		h.setPause(h.desk().Resume)
	case "lose lease":
		h.interrupts()
		h.exec("UPDATE troupe.relay_leases SET term = term + 1, holder = 'another', expires_at = clock_timestamp() + interval '1 second'")
	case "drop slot":
		h.healed = true
		h.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND active")
		// A relay may hold the slot again by now; then it keeps it.
		_, _ = h.pool.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database() AND NOT active")
		h.loseDeleted()
	case "publication off":
		h.healed = true
		h.exec("ALTER PUBLICATION " + h.publication() + " SET (publish = 'update')")
	case "publication on":
		h.restorePublication()
	default:
		require.True(h.rt, h.changeTable(step), "unknown step %q", step.Kind)
	}
}

// interrupts is called before a fault. Exactly-once delivery may repeat rows if it finds the relay at rows that it does not read from
// the log: of the table, before its slot is made, or of the failures.
func (h *history) interrupts() {
	state, failures := "troupe.relay_state WHERE", "troupe.outbox_failures"
	if isMapped(h.source) {
		if !h.streams() || h.count("SELECT count(*) FROM troupe.mapped_failures") > 0 {
			h.healed = true
		}
		return
	}
	if h.count("SELECT count(*) FROM "+state+" source = 'wal' AND sweep IS NULL") == 0 || h.count("SELECT count(*) FROM "+failures) > 0 {
		h.healed = true
	}
}

// restorePublication lets the publication publish inserts again. The relay of a mapped table then wants its slot dropped.
func (h *history) restorePublication() {
	h.healed = true
	if !isMapped(h.source) {
		h.exec("ALTER PUBLICATION " + h.publication() + " SET (publish = 'insert')")
		return
	}
	h.exec("ALTER PUBLICATION " + h.publication() + " SET (publish = '" + h.publishes() + "')")
	h.await("the slot to be dropped", func() (bool, error) {
		h.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND active")
		_, err := h.pool.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
		return err == nil, err
	})
	h.loseDeleted()
}

func (h *history) replaceRelay(s syscall.Signal) {
	if h.frozen {
		h.child.signal(syscall.SIGCONT)
		h.frozen = false
	}
	h.endRelay(s)
	h.start()
}

// endRelay sends s to the relay and waits until its process is gone.
func (h *history) endRelay(s syscall.Signal) {
	child := h.child
	h.child = nil
	child.signal(s)
	status := child.wait(waitLimit)
	if s == syscall.SIGTERM {
		require.Equal(h.rt, 0, status.ExitStatus(), "exit status of a relay that was asked to stop: %s", child.said.String())
	}
}

// A modelRow is a row to insert.
type modelRow struct {
	key            int
	topic, payload string
	at             *string // creation time of a row of troupe.outbox; nil: now
	xid            *string // transaction id of a row of troupe.outbox; nil: its own
	withoutXID     bool    // of a mapped table
	leaf           bool    // into a partition of it
}

func (h *history) insertRow(ctx context.Context, tx pgx.Tx, r modelRow) error {
	if isMapped(h.source) {
		return h.insertEvent(ctx, tx, r)
	}
	_, err := tx.Exec(ctx, `INSERT INTO troupe.outbox (topic, key, type, payload, created_at, xid)
		VALUES ($1, $2, 'Thing', $3, coalesce($4::text::timestamptz, now()), coalesce($5::text::xid8, pg_current_xact_id()))`,
		r.topic, modelKeys[r.key], []byte(r.payload), r.at, r.xid)
	return err
}

// insertNumbered inserts rows whose payloads are key-number, from the next number of the key on. It returns how many other rows it
// inserted, which can never be published.
func (h *history) insertNumbered(tx pgx.Tx, step modelStep) (bad int) {
	row := modelRow{key: step.Key, topic: h.topic, withoutXID: step.Mode == withoutXID, leaf: step.Mode == inLeaf}
	if step.Mode == "infinity" || step.Mode == "-infinity" {
		row.at = &step.Mode
	}
	if step.Mode == restored {
		row.xid = ptr("3")
	}
	for n := range step.Rows {
		if step.Mode == beside && n == step.Rows/2 {
			row.payload, bad = tooLarge(), 1
			require.NoError(h.rt, h.insertRow(context.Background(), tx, row))
		}
		row.payload = fmt.Sprintf("%d-%d", step.Key, h.committed[step.Key]+n)
		require.NoError(h.rt, h.insertRow(context.Background(), tx, row))
	}
	return bad
}

// tooLarge returns a payload that the topic does not take.
func tooLarge() string { return hex.EncodeToString(incompressible(60_000)) }

func (h *history) write(step modelStep) {
	if h.open[step.Key] != nil { // the writers of a key take turns, as their own row would make them
		h.closeTx(modelStep{Key: step.Key, Mode: "commit"})
	}
	ctx := context.Background()
	tx, err := h.pool.Begin(ctx)
	require.NoError(h.rt, err)
	defer func() { _ = tx.Rollback(ctx) }()
	switch step.Mode {
	case "asynchronous":
		_, err = tx.Exec(ctx, "SET LOCAL synchronous_commit = off")
		require.NoError(h.rt, err)
	case "savepoint":
		undone, err := tx.Begin(ctx)
		require.NoError(h.rt, err)
		require.NoError(h.rt, h.insertRow(ctx, undone, modelRow{key: step.Key, topic: h.topic, payload: "rolled back to a savepoint"}))
		require.NoError(h.rt, undone.Rollback(ctx))
	case released:
		part, err := tx.Begin(ctx)
		require.NoError(h.rt, err)
		half := step
		half.Rows = (step.Rows + 1) / 2
		h.insertNumbered(tx, half)
		whole := step
		whole.Rows -= half.Rows
		h.committed[step.Key] += half.Rows
		h.insertNumbered(part, whole)
		h.committed[step.Key] -= half.Rows
		require.NoError(h.rt, part.Commit(ctx))
		require.NoError(h.rt, tx.Commit(ctx))
		h.committed[step.Key] += step.Rows
		return
	}
	bad := h.insertNumbered(tx, step)
	if step.Mode == prepared && h.model.prepares {
		h.prepareTx(tx, step.Key)
		h.exec("COMMIT PREPARED '" + h.gid(step.Key) + "'")
		h.committed[step.Key] += step.Rows
		h.bad += bad
		return
	}
	if step.Mode == "rollback" {
		return
	}
	if step.Mode == vanishing {
		h.deleteIn(tx, step.Key, h.committed[step.Key])
	}
	streamed := step.Mode != vanishing || h.streams()
	require.NoError(h.rt, tx.Commit(ctx))
	h.committed[step.Key] += step.Rows
	h.bad += bad
	if step.Mode == vanishing {
		h.loseDeletedWithoutSlot(streamed)
	}
}

func (h *history) openTx(step modelStep) {
	if h.open[step.Key] != nil {
		return
	}
	tx, err := h.pool.Begin(context.Background())
	require.NoError(h.rt, err)
	h.open[step.Key] = &openWrite{tx: tx, rows: step.Rows, bad: h.insertNumbered(tx, step)}
	if step.Mode == prepared && h.model.prepares {
		h.prepareTx(tx, step.Key)
		h.open[step.Key].prepared = true
	}
}

func (h *history) closeTx(step modelStep) {
	w := h.open[step.Key]
	if w == nil {
		return
	}
	delete(h.open, step.Key)
	if step.Mode == "rollback" {
		h.endTx(w, step.Key, "ROLLBACK")
		return
	}
	h.endTx(w, step.Key, "COMMIT")
	h.committed[step.Key] += w.rows
	h.bad += w.bad
}

// insertOdd inserts a row with text that cannot be converted to UTF-8.
func (h *history) insertOdd(key *string) {
	h.bad++
	if isMapped(h.source) {
		h.exec(`INSERT INTO public.events (aggregateid, payload) SELECT $1, convert_from($2, getdatabaseencoding())`,
			key, append(bytes.Repeat([]byte("x"), 20_001), 0x81))
		return
	}
	h.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, $2, convert_from($3, getdatabaseencoding()), 'never'`, h.topic+".unknown", key, []byte("odd\x81"))
}

// commitOpen commits each transaction that a step began.
func (h *history) commitOpen() {
	for key := range h.open {
		h.closeTx(modelStep{Key: key, Mode: "commit"})
	}
}

// insertBad inserts a row that can never be published.
func (h *history) insertBad(key int, topic, payload string) {
	require.NoError(h.rt, pgx.BeginFunc(context.Background(), h.pool, func(tx pgx.Tx) error {
		return h.insertRow(context.Background(), tx, modelRow{key: key, topic: topic, payload: payload})
	}))
	h.bad++
}
