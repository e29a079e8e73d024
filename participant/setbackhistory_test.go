package participant_test

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// setBackHistory runs a setBackPlan with members in this process and a broker of its own.
type setBackHistory struct {
	*projection
	t          *testing.T
	plan       setBackPlan
	port       int
	dir        string
	cluster    *kfake.Cluster
	image      string // a copy of dir; "": none
	images     int
	members    []*setBackMember
	sent       map[int]sentMessage
	used       [2]usedOffsets // of each partition
	losses     int
	cutOff     bool // after a loss a member was killed, or the disks were copied: perhaps before the lower offset was committed
	generation int
	open       int64 // the rebuild that has not ended; 0: none
	noDatabase bool
}

type sentMessage struct {
	n         int
	key, typ  string
	partition int32
	offset    int64
	late      bool // it was sent after a loss that no member had noticed
	passed    bool // it may have been passed over before a later loss
}

func (m sentMessage) String() string {
	return fmt.Sprintf("%s %d of key %s at %d/%d (late %v)", m.typ, m.n, m.key, m.partition, m.offset, m.late)
}

// usedOffsets describes the losses of a partition.
type usedOffsets struct {
	end     int64 // the highest end of the log before a loss
	low     int64 // the offset after the last one that counted as ended then: no member's position is lower
	exact   bool  // no member had messages that it had not handled
	pending bool  // there may be a loss that no member has noticed
	grown   bool  // the log has grown to low before a member has noticed its loss
}

// unseen reports whether m may be passed over: no member could notice that the log was set back.
func (h *setBackHistory) unseen(m sentMessage) bool {
	return m.passed || m.late && h.used[m.partition].grown && m.offset < h.used[m.partition].end
}

func newSetBackHistory(t *testing.T, plan setBackPlan) *setBackHistory {
	h := &setBackHistory{t: t, plan: plan, dir: t.TempDir(), sent: make(map[int]sentMessage)}
	h.startBroker()
	t.Cleanup(func() { h.cluster.Close() })
	_, port, err := net.SplitHostPort(h.cluster.ListenAddrs()[0])
	require.NoError(t, err)
	h.port, err = strconv.Atoi(port)
	require.NoError(t, err)
	s := &stage{t: t, pool: testkit.Database(t), brokers: h.cluster.ListenAddrs(), hop: topics.MustHop(testkit.Flow(t), "payment")}
	s.exec(counters)
	h.projection = &projection{stage: s, bank: topics.MustHop(s.hop.Flow(), "bank")}
	s.exec("ALTER TABLE done ADD rebuilt boolean NOT NULL DEFAULT coalesce(current_setting('troupe.rebuild', true), '') = 'on'")
	h.withClient(func(client *kgo.Client) {
		testkit.Topics(t, client, plan.Partitions, s.hop.Commands(), s.hop.Events(), s.hop.DeadLetters(), h.bank.Events())
	})
	t.Cleanup(func() {
		for _, m := range h.members {
			m.stop(true)
		}
	})
	return h
}

func (h *setBackHistory) startBroker() {
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(h.dir), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}
	if h.port != 0 {
		opts = append(opts, kfake.Ports(h.port))
	}
	waitFor(h.t, "the broker's port", func() (started bool) {
		cluster, err := kfake.NewCluster(opts...)
		if err == nil {
			h.cluster = cluster
		}
		return err == nil
	})
}

// withClient calls do with a client of a sender, which is restarted with the broker.
func (h *setBackHistory) withClient(do func(*kgo.Client)) {
	client, err := kafka.NewClient(h.cluster.ListenAddrs(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(h.t, err)
	defer client.Close()
	do(client)
}

func (h *setBackHistory) send(step setBackStep) {
	var records []*kgo.Record
	var sent []sentMessage
	partition := int32(step.Key) % h.plan.Partitions
	key := fmt.Sprintf("k-%d", step.Key)
	for range step.N {
		n := 1 + len(h.sent) + len(sent)
		fail := ""
		if step.Held {
			fail = "later"
			h.broken.Store(true)
		}
		m := h.event(key, Paid{N: n, Fail: fail})
		if step.Type == "Refunded" {
			m = h.event(key, Refunded{N: n})
		}
		r := kafka.Record(m)
		r.Partition = partition
		records, sent = append(records, r), append(sent, sentMessage{n: n, key: key, typ: step.Type, partition: partition})
	}
	h.withClient(func(client *kgo.Client) {
		require.NoError(h.t, client.ProduceSync(h.t.Context(), records...).FirstErr())
	})
	used := &h.used[partition]
	for i, m := range sent {
		m.offset, m.late = records[i].Offset, used.pending
		h.sent[m.n] = m
		used.grown = used.grown || used.pending && m.offset+1 >= used.low
	}
}

// logs returns the messages that are in the logs, in their order.
func (h *setBackHistory) logs() (all []sentMessage) {
	byID := make(map[string]bool)
	client, err := kafka.NewClient(h.cluster.ListenAddrs(), kgo.ConsumeTopics(h.bank.Events()))
	require.NoError(h.t, err)
	defer client.Close()
	ends := h.ends()
	want := int64(0)
	for _, end := range ends {
		want += end
	}
	for int64(len(all)) < want {
		fetches := client.PollFetches(h.t.Context())
		require.NoError(h.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			var body struct{ N int }
			require.NoError(h.t, json.Unmarshal(r.Value, &body))
			m := h.sent[body.N]
			require.Equal(h.t, r.Offset, m.offset)
			require.False(h.t, byID[string(r.Value)])
			byID[string(r.Value)] = true
			all = append(all, m)
		})
	}
	slices.SortFunc(all, func(a, b sentMessage) int { return a.n - b.n })
	return all
}

// ends returns the end of each log.
func (h *setBackHistory) ends() []int64 {
	all := make([]int64, h.plan.Partitions)
	h.withClient(func(client *kgo.Client) {
		ends, err := kafka.HighWatermarks(h.t.Context(), client, h.bank.Events())
		require.NoError(h.t, err)
		for id, end := range ends[h.bank.Events()] {
			require.NoError(h.t, end.Err)
			all[id] = end.Offset
		}
	})
	return all
}

type effectsOf struct {
	once, rebuilt int
	position      int // of the first effect that is no part of a rebuild
}

func (h *setBackHistory) effects() map[int]effectsOf {
	all := make(map[int]effectsOf)
	rows, err := h.pool.Query(h.t.Context(), "SELECT position, abs(n), rebuilt FROM done ORDER BY position")
	require.NoError(h.t, err)
	var position, n int
	var rebuilt bool
	_, err = pgx.ForEachRow(rows, []any{&position, &n, &rebuilt}, func() error {
		e := all[n]
		if rebuilt {
			e.rebuilt++
		} else {
			if e.once++; e.once == 1 {
				e.position = position
			}
		}
		all[n] = e
		return nil
	})
	require.NoError(h.t, err)
	return all
}

// notice waits until no offset from the end of a log on counts as ended, and then until a member that reads beyond has joined again.
func (h *setBackHistory) notice() {
	h.away(false)
	if !h.running() {
		h.join()
	}
	ends := h.ends()
	for i := range ends {
		h.await(fmt.Sprintf("the loss of log %d to be noticed", i), func() bool { return h.counted(i) <= ends[i] })
		h.used[i].pending = h.used[i].pending && !h.used[i].exact
	}
}

// await waits until cond returns true.
func (h *setBackHistory) await(what string, cond func() bool) {
	if !h.within(cond) {
		h.dump()
		h.t.Fatalf("waited %s for %s", setBackLimit, what)
	}
}

// within waits until cond returns true, and reports whether it did. The limit detects a failure, it does not measure.
func (h *setBackHistory) within(cond func() bool) bool {
	limit := time.NewTimer(setBackLimit)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			return false
		}
	}
	return true
}

const setBackLimit = 2 * time.Minute

// dump logs the state of a history that fails.
func (h *setBackHistory) dump() {
	for i, m := range h.members {
		h.t.Logf("member %d (runs: %v):\n%s", i, m.running, m.log.String())
	}
	h.t.Logf("ends %v, losses %+v", h.ends(), h.used)
	for _, table := range []string{"leases", "inbox_offsets", "rebuilds", "rebuild_partitions", "held"} {
		rows, err := h.pool.Query(h.t.Context(), "SELECT to_jsonb(t) - 'headers' - 'payload' FROM troupe."+table+" AS t")
		require.NoError(h.t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(h.t, err)
		h.t.Logf("%s: %s", table, strings.Join(all, "\n"))
	}
}

// counted returns the offset after the last one that counts as ended.
func (h *setBackHistory) counted(partition int) int64 {
	return int64(h.count(`SELECT 1 + coalesce(max(greatest(l.watermark, o.high, p.until - 1)), -1) FROM troupe.leases AS l
		LEFT JOIN troupe.inbox_offsets AS o ON o.lease_id = l.id
		LEFT JOIN (troupe.rebuild_partitions AS p JOIN troupe.rebuilds AS r ON r.id = p.rebuild AND r.finished_at IS NULL)
			ON p.topic = l.topic AND p.partition = l.partition
		WHERE l.topic = $1 AND l.partition = $2`, h.bank.Events(), partition))
}

// settle waits until each message is handled and no loss is left to be noticed: members that join then see the ends of the logs.
func (h *setBackHistory) settle() {
	h.notice()
	h.broken.Store(false)
	ends := h.ends()
	for i, end := range ends {
		h.await(fmt.Sprintf("log %d to be handled", i), func() bool {
			return h.counted(i) >= end && h.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND partition = $2 AND watermark + 1 >= $3", h.bank.Events(), i, end) == 1
		})
	}
	h.await("the held messages", func() bool { return h.count("SELECT count(*) FROM troupe.held") == 0 })
	if h.open != 0 {
		h.await("the rebuild", func() bool {
			return h.count("SELECT count(*) FROM troupe.rebuilds WHERE id = $1 AND finished_at IS NOT NULL", h.open) == 1
		})
		h.open = 0
	}
	missing := func() (n int) {
		effects := h.effects()
		for _, m := range h.sent {
			if m.offset >= 0 && effects[m.n].once == 0 && !h.unseen(m) {
				n++
			}
		}
		return n
	}
	if !h.within(func() bool { return missing() == 0 }) { // messages before the watermark may be read again
		h.judge()
	}
	for i := range h.used {
		h.used[i].pending = false
	}
}

func (h *setBackHistory) begin() {
	if h.open != 0 {
		return
	}
	h.generation++
	h.withClient(func(client *kgo.Client) {
		h.client = client
		h.open = h.rebuild(h.generation, false)
	})
}

func (h *setBackHistory) cancelRebuild() {
	if h.open == 0 {
		return
	}
	err := rebuilds.Desk{Pool: h.pool}.Cancel(h.t.Context(), h.open, ann)
	if err == nil || h.count("SELECT count(*) FROM troupe.rebuilds WHERE id = $1 AND finished_at IS NOT NULL", h.open) == 1 {
		h.open = 0
		return
	}
	require.NoError(h.t, err)
}
