package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
)

// The floor is the baseline of a participant: one service's consumer, written for its one message by an expert in pgx, kgo and
// this schema, with every statement that the guarantees need and nothing else: no retries, no held keys, no dead letters, no
// back-pressure except a channel's, no hooks, no rebalancing.

// The participant's statements, and the outbox's. A test compares them with the originals.
var (
	//go:embed sql/share_lease.sql
	shareLease string
	//go:embed sql/insert_offsets.sql
	insertOffsets string
	//go:embed sql/insert_recent.sql
	insertRecent string
	//go:embed sql/move_watermark.sql
	moveWatermark string
	//go:embed sql/prune_offsets.sql
	pruneOffsets string
	//go:embed sql/insert_outbox.sql
	insertOutbox string
)

const (
	notify     = "SELECT pg_notify('troupe_outbox', '')"
	leaseClass = 0x74727570
	idleLimit  = "40000"
	dayMs      = 24 * 60 * 60 * 1000
	slots      = 32
)

type floorConsumer struct {
	task
	m        *meter
	pool     *pgxpool.Pool
	client   *kgo.Client
	commands string
	events   string
	topicID  uuid.UUID
	leases   []int32
	tracks   []track
	notified atomic.Int64
}

// floor consumes until ctx ends.
func floor(ctx context.Context, k task, m *meter) (err error) {
	f := &floorConsumer{task: k, m: m, commands: k.Hop + ".commands", events: k.Hop + ".events"}
	f.leases, f.tracks = make([]int32, k.Partitions), make([]track, k.Partitions)
	if f.pool, err = harness.OpenPool(ctx, k.URL, k.Concurrency+2); err != nil {
		return err
	}
	defer f.pool.Close()
	const lease = `INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, $3, 'floor') RETURNING id`
	for p := range f.leases {
		if err := f.pool.QueryRow(ctx, lease, k.Group, f.commands, p).Scan(&f.leases[p]); err != nil {
			return err
		}
	}
	f.client, err = kgo.NewClient(
		kgo.SeedBrokers(k.Brokers...), kgo.ConsumerGroup(k.Group), kgo.ConsumeTopics(f.commands),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.FetchMaxBytes(8<<20), kgo.FetchMaxPartitionBytes(512<<10), kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer f.client.Close()
	all, inner := errgroup.WithContext(ctx)
	all.Go(func() error { return f.storeWatermarks(inner) })
	if k.Batch > 1 {
		f.byPartition(inner, all)
	} else {
		f.byKey(inner, all)
	}
	if err := all.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// byPartition starts a goroutine for each partition, which takes the waiting messages in batches. k.Concurrency is that number,
// too.
func (f *floorConsumer) byPartition(ctx context.Context, all *errgroup.Group) {
	queues := make([]chan []*kgo.Record, f.Partitions)
	for p := range queues {
		queues[p] = make(chan []*kgo.Record, 1)
		all.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case records := <-queues[p]:
					for len(records) > 0 {
						n := min(f.Batch, len(records))
						if err := f.transaction(ctx, records[:n]); err != nil {
							return err
						}
						f.tracks[p].last.Store(records[n-1])
						f.client.MarkCommitRecords(records[n-1])
						records = records[n:]
					}
				}
			}
		})
	}
	all.Go(func() error {
		return f.poll(ctx, func(p kgo.FetchTopicPartition) {
			select {
			case queues[p.Partition] <- p.Records:
			case <-ctx.Done():
			}
		})
	})
}

// byKey starts goroutines that each have some keys and take one message per transaction.
func (f *floorConsumer) byKey(ctx context.Context, all *errgroup.Group) {
	queues := make([]chan *kgo.Record, f.Concurrency)
	for i := range queues {
		queues[i] = make(chan *kgo.Record, 128)
		all.Go(func() error {
			one := make([]*kgo.Record, 1)
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case one[0] = <-queues[i]:
					if err := f.transaction(ctx, one); err != nil {
						return err
					}
					if low := f.tracks[one[0].Partition].finish(one[0]); low != nil {
						f.client.MarkCommitRecords(low)
					}
				}
			}
		})
	}
	seed := maphash.MakeSeed()
	all.Go(func() error {
		return f.poll(ctx, func(p kgo.FetchTopicPartition) {
			f.tracks[p.Partition].start(p.Records)
			for _, r := range p.Records {
				select {
				case queues[maphash.Bytes(seed, r.Key)%uint64(len(queues))] <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

func (f *floorConsumer) poll(ctx context.Context, each func(kgo.FetchTopicPartition)) error {
	for {
		fetches := f.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachTopic(func(t kgo.FetchTopic) {
			if f.topicID != t.TopicID { // once, before any record is processed
				f.topicID = t.TopicID
			}
		})
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				each(p)
			}
		})
	}
}

// transaction processes records of one partition: two round trips, and one for each statement that the handler waits for.
func (f *floorConsumer) transaction(ctx context.Context, records []*kgo.Record) error {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	slot, redrive := make([]int16, len(records)), make([]int32, len(records))
	ids := make([][16]byte, len(records)) // as uuid.UUID they would be sent as text
	for i, r := range records {
		if ids[i], err = idOf(r); err != nil {
			return err
		}
		var ms [8]byte
		copy(ms[2:], ids[i][:6])
		slot[i] = int16(binary.BigEndian.Uint64(ms[:]) / dayMs % slots)
	}
	first, last := records[0], records[len(records)-1]
	lease := f.leases[first.Partition]
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(shareLease, int32(leaseClass), lease, idleLimit)
	b.Queue(insertOffsets, lease, int64(1), [16]byte(f.topicID), first.Offset, last.Offset, nil, last.LeaderEpoch)
	b.Queue(insertRecent, f.Group, slot, ids, redrive)
	fresh, err := f.claim(conn.SendBatch(ctx, &b), len(records))
	if err != nil {
		return err
	}
	var rest pgx.Batch
	for i, r := range records {
		if !fresh[ids[i]] {
			continue
		}
		if err := f.handle(ctx, conn, &rest, r, ids[i]); err != nil {
			return err
		}
	}
	if last, now := f.notified.Load(), time.Now().UnixNano(); now-last >= int64(5*time.Millisecond) && f.notified.CompareAndSwap(last, now) {
		rest.Queue(notify)
	}
	rest.Queue("commit")
	if err := conn.SendBatch(ctx, &rest).Close(); err != nil {
		return err
	}
	if len(fresh) > 0 {
		f.m.count(len(fresh), len(fresh))
	}
	return nil
}

// claim reads the results of the first statements, and returns which ids were new.
func (f *floorConsumer) claim(results pgx.BatchResults, n int) (fresh map[uuid.UUID]bool, err error) {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return nil, errors.Join(err, results.Close())
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("fenced")
	}
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	rows, _ := results.Query()
	fresh = make(map[uuid.UUID]bool, n)
	var id uuid.UUID
	var redrive int32
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &redrive}, func() error {
		fresh[id] = true
		return nil
	})
	return fresh, errors.Join(err, results.Close())
}

// eventHeaders are the headers of the answer.
type eventHeaders struct {
	SpecVersion   string `json:"ce_specversion"`
	Source        string `json:"ce_source"`
	ContentType   string `json:"content-type"`
	CorrelationID string `json:"ce_correlationid"`
	CausationID   string `json:"ce_causationid"`
	Outcome       string `json:"ce_outcome"`
}

// handle is the service's handler of one message.
func (f *floorConsumer) handle(ctx context.Context, conn *pgxpool.Conn, rest *pgx.Batch, r *kgo.Record, id uuid.UUID) error {
	var d Deposit
	if err := json.Unmarshal(r.Value, &d); err != nil {
		return err
	}
	key := string(r.Key)
	if f.Wait {
		if _, err := conn.Exec(ctx, upsert, key, d.Amount); err != nil {
			return err
		}
	} else {
		rest.Queue(upsert, key, d.Amount)
	}
	payload, err := json.Marshal(Deposited(d))
	if err != nil {
		return err
	}
	text := id.String()
	headers, err := json.Marshal(eventHeaders{
		SpecVersion: "1.0", Source: "account", ContentType: "application/json", CorrelationID: text, CausationID: text, Outcome: "success",
	})
	if err != nil {
		return err
	}
	event, err := uuid.NewV7()
	if err != nil {
		return err
	}
	rest.Queue(insertOutbox, [16]byte(event), f.events, key, nil, "Deposited", headers, nil, payload)
	return nil
}

func idOf(r *kgo.Record) (id [16]byte, err error) {
	for _, h := range r.Headers {
		if h.Key == "ce_id" {
			return uuid.ParseBytes(h.Value)
		}
	}
	return id, fmt.Errorf("no ce_id at offset %d", r.Offset)
}

// storeWatermarks stores the watermarks, each second.
func (f *floorConsumer) storeWatermarks(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for p := range f.tracks {
			r := f.tracks[p].last.Load()
			if r == nil {
				continue
			}
			args := pgx.NamedArgs{
				"lease": f.leases[p], "term": int64(1), "topic_id": f.topicID, "watermark": r.Offset, "epoch": r.LeaderEpoch, "released": false,
			}
			err := pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, moveWatermark, args); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, pruneOffsets, args)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
}

// A track records up to which offset a partition's messages have ended without a gap.
type track struct {
	last    atomic.Pointer[kgo.Record]
	mu      sync.Mutex
	running []*kgo.Record
	ended   map[int64]bool
}

func (t *track) start(records []*kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = append(t.running, records...)
	if t.ended == nil {
		t.ended = make(map[int64]bool)
	}
}

func (t *track) finish(r *kgo.Record) (low *kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[r.Offset] = true
	for len(t.running) > 0 && t.ended[t.running[0].Offset] {
		low = t.running[0]
		delete(t.ended, low.Offset)
		t.running = t.running[1:]
	}
	if low != nil {
		t.last.Store(low)
	}
	return low
}
