package participant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// recordClaims records the identity of each effect: which transaction has put it into the inbox.
const recordClaims = `
ALTER TABLE done ADD id text, ADD tx xid8 DEFAULT pg_current_xact_id();
CREATE TABLE claims (tx xid8 DEFAULT pg_current_xact_id(), id text, redrive int, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO claims (id, redrive) VALUES (NEW.id::text, NEW.redrive); RETURN NULL; END $$;
CREATE TRIGGER claimed AFTER INSERT ON troupe.inbox_recent FOR EACH ROW EXECUTE FUNCTION claimed();`

// history runs random steps on a projection, and records each message that it sent.
type history struct {
	*projection
	shop    topics.Hop
	pool    *pgxpool.Pool // of the members
	random  *rand.Rand
	prunes  bool // a step may delete rows of the inbox, as retention does; if false, a step may send a message twice instead
	members []func()

	sent      []envelope.Message
	delivered []delivered
	numbers   map[string]int // of each key
	gone      map[topicPartitionOf]int64
	discarded map[string]map[int]bool // generations of discarded dead letters, by id

	mu     sync.Mutex
	faults map[string]int // runs of a message that fail
}

type topicPartitionOf struct {
	topic     string
	partition int32
}

// delivered is a message in Kafka.
type delivered struct {
	envelope.Message
	at     topicPartitionOf
	offset int64
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		projection: newProjection(t, 2), random: rand.New(rand.NewPCG(seed, 0)), numbers: make(map[string]int), gone: make(map[topicPartitionOf]int64),
		discarded: make(map[string]map[int]bool), faults: make(map[string]int),
	}
	h.shop = topics.MustHop(h.hop.Flow(), "shop")
	h.prunes = h.chance(50)
	testkit.Topics(t, h.client, 2, h.shop.Events())
	h.exec(recordClaims)
	cfg := h.projection.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = "member"
	var err error
	h.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(h.pool.Close)
	return h
}

func (h *history) chance(percent int) bool { return h.random.IntN(100) < percent }

// handle is the work of all handlers. A message with faults fails.
func (h *history) handle(ctx context.Context, tx pgx.Tx, p *participant.Participant, m envelope.Message) error {
	h.mu.Lock()
	n := h.faults[m.ID]
	h.faults[m.ID] = max(n-1, 0)
	h.mu.Unlock()
	if n > 0 {
		return errAsked
	}
	var body Paid
	if err := json.Unmarshal(m.Payload, &body); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt, id) VALUES ($1, $2, 1, $3)", m.Subject, body.N, m.ID); err != nil {
		return err
	}
	if err := p.Schedule(ctx, tx, participant.Deadline{Name: "late", Scope: m.ID, After: time.Hour, Body: Paid{}}); err != nil {
		return err
	}
	return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: p.Hop().Events(), Key: m.Subject, Body: Refunded{N: body.N}})
}

func (h *history) join() {
	p := h.new(func(c *participant.Config) {
		c.Pool, c.Batch, c.Drain = h.pool, []int{1, 5, 20}[h.random.IntN(3)], time.Second
		c.Retry.Initial, c.Retry.Cap = 30*time.Millisecond, 300*time.Millisecond
		c.Kafka = quick()
	})
	participant.On(p, h.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		return h.handle(ctx, tx, p, e.Message)
	})
	participant.On(p, h.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Refunded]) error {
		return h.handle(ctx, tx, p, e.Message)
	})
	participant.OnAll(p, []topics.Hop{h.shop}, func(_ context.Context, tx pgx.Tx, ms []participant.Taken) error {
		for _, m := range ms {
			if err := h.handle(m.Context(), tx, p, m.Message); err != nil {
				return err
			}
		}
		return nil
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	h.members = append(h.members, h.start(p))
}

func (h *history) leave() {
	i := h.random.IntN(len(h.members))
	h.members[i]()
	h.members = slices.Delete(h.members, i, i+1)
}

func (h *history) deliver(ms ...envelope.Message) {
	h.t.Helper()
	for _, m := range ms {
		r, err := h.client.ProduceSync(h.t.Context(), kafka.Record(m)).First()
		require.NoError(h.t, err)
		h.delivered = append(h.delivered, delivered{m, topicPartitionOf{r.Topic, r.Partition}, r.Offset})
	}
}

func (h *history) sendNew(n int) {
	for range n {
		key := fmt.Sprintf("k-%d", h.random.IntN(5))
		topic := h.bank.Events()
		if h.chance(30) {
			topic, key = h.shop.Events(), "shop "+key
		}
		var body any = Paid{N: h.numbers[key]}
		if h.chance(30) {
			body = Refunded{N: h.numbers[key]}
		}
		h.numbers[key]++
		m := h.event(key, body)
		if m.Topic = topic; h.chance(10) {
			m.Key = nil
		}
		if h.chance(8) {
			h.fail(m)
		}
		h.sent = append(h.sent, m)
		h.deliver(m)
	}
}

func (h *history) fail(m envelope.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[m.ID] = 1 + h.random.IntN(9)
}

func (h *history) any() envelope.Message { return h.sent[h.random.IntN(len(h.sent))] }

// redrive redrives all open dead letters, as operator and relay do.
func (h *history) redrive() {
	_, err := h.desk().Redrive(h.t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann, Rate: -1})
	require.NoError(h.t, err)
	rows, err := h.projection.pool.Query(h.t.Context(), "DELETE FROM troupe.outbox WHERE topic = ANY ($1) RETURNING "+outboxrow.Columns,
		[]string{h.bank.Events(), h.shop.Events()})
	require.NoError(h.t, err)
	defer rows.Close()
	for rows.Next() {
		var r outboxrow.Row
		require.NoError(h.t, rows.Scan(r.Fields()...))
		m, err := r.Message(outboxrow.Defaults{Source: "payment"})
		require.NoError(h.t, err)
		h.deliver(m)
	}
	require.NoError(h.t, rows.Err())
}

// discard discards a dead letter.
func (h *history) discard() {
	var id string
	var redrives int
	err := h.projection.pool.QueryRow(h.t.Context(), `UPDATE troupe.dead_letters SET status = 'discarded' WHERE status = 'open'
		AND id = (SELECT id FROM troupe.dead_letters WHERE status = 'open' ORDER BY id LIMIT 1) RETURNING message_id, redrives`).Scan(&id, &redrives)
	if errors.Is(err, pgx.ErrNoRows) {
		return
	}
	require.NoError(h.t, err)
	if h.discarded[id] == nil {
		h.discarded[id] = make(map[int]bool)
	}
	h.discarded[id][redrives>>deadletter.GenerationShift] = true
}

// release makes dead letters of the first held message of each key of the first page.
func (h *history) release() {
	keys, _, err := h.desk().Held(h.t.Context(), repair.HeldFilter{}, repair.Page{})
	require.NoError(h.t, err)
	for _, k := range keys {
		_, _ = h.desk().Release(h.t.Context(), k.Place, repair.ReleaseConfig{By: ann}) // it may have ended meanwhile
	}
}

// rebuildSome starts a rebuild of random handlers from a random offset on, if none is open and no partition waits for long.
func (h *history) rebuildSome() {
	if h.open() != 0 {
		return
	}
	group := h.hop.String()
	of := map[string][]string{h.bank.Events(): {group + "/Paid"}}
	switch h.random.IntN(4) {
	case 1:
		of[h.bank.Events()] = append(of[h.bank.Events()], group+"/Refunded")
	case 2:
		of = map[string][]string{h.shop.Events(): {group + "/all"}}
	case 3:
		of[h.shop.Events()] = []string{group + "/all"}
	}
	require.NoError(h.t, pgx.BeginFunc(h.t.Context(), h.projection.pool, func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(h.t.Context(), `INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit)
			SELECT $1, 1 + count(*), '{all}', 'epoch', $2 FROM troupe.rebuilds RETURNING id`, group, h.chance(20)).Scan(&id)
		for topic, handlers := range of {
			ids, idErr := kafka.TopicIDs(h.t.Context(), h.client, topic)
			require.NoError(h.t, idErr)
			for partition := range int32(2) {
				if err != nil {
					return err
				}
				from := 0
				if h.chance(40) {
					from = h.random.IntN(1 + len(h.delivered)/4)
				}
				_, err = tx.Exec(h.t.Context(), `INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
					VALUES ($1, $2, $3, $4, $5, $6)`, id, topic, partition, kafka.TopicID(topic, ids[topic]), handlers, from)
			}
		}
		return err
	}))
}

// open returns the open rebuild; 0: none.
func (h *history) open() int64 {
	return int64(h.count("SELECT coalesce(max(id), 0) FROM troupe.rebuilds WHERE finished_at IS NULL"))
}

// retain deletes the records up to a random offset at or below the watermark, as the retention of a topic does.
func (h *history) retain() {
	offsets := make(kadm.Offsets)
	rows, err := h.projection.pool.Query(h.t.Context(), "SELECT topic, partition, watermark FROM troupe.leases WHERE watermark >= 0 AND topic = ANY ($1)",
		[]string{h.bank.Events(), h.shop.Events()})
	require.NoError(h.t, err)
	var at topicPartitionOf
	var watermark int64
	_, err = pgx.ForEachRow(rows, []any{&at.topic, &at.partition, &watermark}, func() error {
		if to := h.random.Int64N(watermark + 2); h.chance(30) && to > h.gone[at] {
			offsets.AddOffset(at.topic, at.partition, to, -1)
			h.gone[at] = to
		}
		return nil
	})
	require.NoError(h.t, err)
	if len(offsets) > 0 {
		_, err = kadm.NewClient(h.client).DeleteRecords(h.t.Context(), offsets)
		require.NoError(h.t, err)
	}
}

// step does something at random.
func (h *history) step() string {
	for {
		switch n := h.random.IntN(100); {
		case n < 34:
			h.sendNew(1 + h.random.IntN(6))
			return "send"
		case n < 40 && !h.prunes:
			h.deliver(h.any())
			return "send again"
		case n < 40:
			h.exec(`DELETE FROM troupe.inbox_recent AS i WHERE NOT EXISTS (SELECT FROM troupe.dead_letters AS d WHERE d.message_id = i.id::text)
				AND i.redrive >> 16 IS DISTINCT FROM (SELECT generation FROM troupe.rebuilds WHERE finished_at IS NULL)`)
			return "prune"
		case n < 45:
			h.fail(h.any())
			return "fail"
		case n < 66:
			if h.open() == 0 {
				h.rebuildSome()
				return "rebuild"
			}
		case n < 70:
			if id := h.open(); id != 0 && (h.chance(10) || h.count("SELECT count(until) FROM troupe.rebuild_partitions WHERE rebuild = $1", id) > 0) {
				_ = rebuilds.Desk{Pool: h.projection.pool}.Cancel(h.t.Context(), id, ann) // it may have finished meanwhile
				return "cancel"
			}
		case n < 80:
			h.redrive()
			return "redrive"
		case n < 83:
			h.discard()
			return "discard"
		case n < 87:
			h.release()
			return "release"
		case n < 91:
			h.join()
			if len(h.members) > 1 {
				h.leave()
			}
			return "restart"
		case n < 93:
			for len(h.members) > 0 {
				h.leave()
			}
			committed, err := kadm.NewClient(h.client).FetchOffsets(h.t.Context(), h.hop.String())
			require.NoError(h.t, err)
			// A member that left before it got a partition committed nothing.
			if len(committed) > 0 && h.count("SELECT count(*) FROM troupe.leases WHERE topic LIKE '%.events' AND watermark_epoch < 0") == 0 {
				h.rewind()
			}
			h.join()
			return "reset"
		case n < 97:
			h.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'member' AND random() < 0.5")
			return "cut"
		case n < 99:
			h.retain()
			return "retain"
		default:
			h.join()
			return "join"
		}
	}
}

// settle lets all messages end, and the open rebuild.
func (h *history) settle() {
	clear := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.faults = make(map[string]int)
	}
	clear()
	for n := range 10 { // behind records that retention deleted, in each partition
		for _, topic := range []string{h.bank.Events(), h.shop.Events()} {
			m := h.event(fmt.Sprintf("last %d", n), Paid{})
			m.Topic = topic
			h.sent = append(h.sent, m)
			h.deliver(m)
		}
	}
	h.t.Cleanup(h.explain)
	testkit.Wait(h.t, "all messages to end", func() (bool, error) {
		h.redrive()
		return h.open() == 0 && h.count("SELECT count(*) FROM troupe.held") == 0 && h.count("SELECT troupe.unsettled_letters($1)", h.hop.String()) == 0 &&
			h.count("SELECT count(DISTINCT id) FROM claims WHERE redrive < 65536") == len(h.sent), nil
	})
}

// explain logs the tables of a history that fails.
func (h *history) explain() {
	if !h.t.Failed() {
		return
	}
	for _, table := range []string{"rebuilds", "rebuild_partitions", "leases", "held", "dead_letters", "repairs"} {
		rows, err := h.projection.pool.Query(context.WithoutCancel(h.t.Context()), "SELECT left((to_jsonb(t) - 'headers' - 'payload' - 'raw_headers')::text, 500) FROM troupe."+table+" AS t")
		if err == nil {
			all, _ := pgx.CollectRows(rows, pgx.RowTo[string])
			h.t.Logf("%s:\n%s", table, strings.Join(all, "\n"))
		}
	}
}

// TestRebuildsInARandomHistory runs rebuilds among messages that fail, dead letters that are redriven, discarded and released, members that
// come and go and lose their connections, resets of the group, messages that are sent twice, and records and identities that retention
// deletes. Each message takes effect once, unless it is discarded, and once more in each rebuild that finishes, of its handlers and from its
// offset on, if it had ended before; the effects of a key keep its order; and only effects outside rebuilds, or with emit, write entries.
func TestRebuildsInARandomHistory(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := newHistory(t, seed)
	h.join()
	h.sendNew(10)
	steps := time.NewTicker(100 * time.Millisecond)
	defer steps.Stop()
	var did []string
	for range 120 {
		<-steps.C
		did = append(did, h.step())
	}
	t.Log(strings.Join(did, " "))
	h.settle()
	for len(h.members) > 0 {
		h.leave()
	}
	h.compare()
}
