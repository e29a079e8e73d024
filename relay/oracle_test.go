package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// verdict holds the oracle's counts.
type verdict struct {
	lost      int // rows that committed and were never published
	foreign   int // records of rows that never committed
	reordered int // first copies that were published before the first copy of an earlier row of their key
	repeated  int // further copies under the same id: allowed
}

func (v verdict) requireSound(t testing.TB) {
	t.Helper()
	require.Zero(t, v.lost, "lost")
	require.Zero(t, v.foreign, "published without a commit")
	require.Zero(t, v.reordered, "reordered")
	t.Logf("%+v", v)
}

// requireOnce is for at-least-once without crashes: no row is repeated, unless a stream or a lease was lost. On a machine
// that stalls for some seconds the server ends the stream, and then rows may be repeated.
func (v verdict) requireOnce(t testing.TB, broke string) {
	t.Helper()
	if broke != "" {
		t.Logf("rows may be repeated: %s", broke)
		return
	}
	require.Zero(t, v.repeated)
}

// judge compares records with how many rows were committed per key. A payload is the row's number within its key.
func judge(records []*kgo.Record, committed map[string]int) (v verdict) {
	seen := make(map[string]bool)
	next := make(map[string]int)
	for _, r := range records {
		if seen[header(r, "ce_id")] {
			v.repeated++
			continue
		}
		seen[header(r, "ce_id")] = true
		key := string(r.Key)
		n, err := strconv.Atoi(string(r.Value))
		switch {
		case err != nil || n >= committed[key]:
			v.foreign++
			continue
		case n != next[key]:
			v.reordered++
		}
		next[key] = max(next[key], n) + 1
	}
	for key, n := range committed {
		came := 0
		for _, r := range records {
			if string(r.Key) == key && seen[header(r, "ce_id")] {
				delete(seen, header(r, "ce_id"))
				came++
			}
		}
		v.lost += max(0, n-came)
	}
	return v
}

func TestTheOracleSeesWhatItIsFor(t *testing.T) {
	t.Parallel()
	record := func(id string, n int) *kgo.Record {
		return &kgo.Record{
			Key: []byte("k"), Value: []byte(strconv.Itoa(n)),
			Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}},
		}
	}
	a, b, c := record("a", 0), record("b", 1), record("c", 2)
	for _, x := range []struct {
		name    string
		records []*kgo.Record
		want    verdict
	}{
		{"all in order", []*kgo.Record{a, b, c}, verdict{}},
		{"repeats by id", []*kgo.Record{a, b, a, b, c}, verdict{repeated: 2}},
		{"one lost", []*kgo.Record{a, b}, verdict{lost: 1}},
		{"one overtaken", []*kgo.Record{a, c, b}, verdict{reordered: 2}},
		{"the same row under another id", []*kgo.Record{a, b, c, record("d", 2)}, verdict{reordered: 1}},
		{"one that never committed", []*kgo.Record{a, b, c, record("d", 3)}, verdict{foreign: 1}},
	} {
		require.Equal(t, x.want, judge(x.records, map[string]int{"k": 3}), x.name)
	}
}

// load writes rows until ctx ends: each writer owns its keys, so that their rows are serialised. Some transactions
// hold several rows, some stay open for a while, some roll back.
func (s *stage) load(ctx context.Context, writers, keysEach int) map[string]int {
	committed := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			mine := make(map[string]int)
			for round := 0; ctx.Err() == nil; round++ {
				s.write(mine, fmt.Sprintf("w%d-%d", w, rand.N(keysEach)), round)
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(committed, mine)
		})
	}
	all.Wait()
	return committed
}

func (s *stage) write(committed map[string]int, key string, round int) {
	rows := 1 + rand.N(3)
	roll := round%10 == 9
	err := pgx.BeginFunc(context.Background(), s.pool, func(tx pgx.Tx) error {
		for n := range rows {
			value := strconv.Itoa(committed[key] + n)
			if roll {
				value = "rolled back"
			}
			_, err := tx.Exec(context.Background(),
				`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)`, s.topic, key, []byte(value))
			if err != nil {
				return err
			}
		}
		if round%5 == 4 { // commits after later positions did
			if _, err := tx.Exec(context.Background(), "SELECT pg_sleep($1)", rand.Float64()/20); err != nil {
				return err
			}
		}
		if roll {
			return errRollBack
		}
		return nil
	})
	switch {
	case err == nil:
		committed[key] += rows
	case !errors.Is(err, errRollBack):
		s.t.Errorf("write: %v", err)
	}
}

var errRollBack = errors.New("roll back")

func total(committed map[string]int) (n int) {
	for _, c := range committed {
		n += c
	}
	return n
}

// fill inserts n rows for each of keys in one statement, in turns.
func (s *stage) fill(topic string, keys, n int) map[string]int {
	s.t.Helper()
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'k' || k, 'Thing', convert_to(n::text, 'UTF8')
		FROM generate_series(0, $3 - 1) AS n, generate_series(1, $2) AS k ORDER BY n, k`, topic, keys, n)
	committed := make(map[string]int, keys)
	for k := 1; k <= keys; k++ {
		committed["k"+strconv.Itoa(k)] = n
	}
	return committed
}

// collect waits until the outbox is empty and n different ids were read, then returns all records.
func (s *stage) collect(n int, topics ...string) []*kgo.Record {
	s.t.Helper()
	s.waitEmpty()
	if delivery == relay.ExactlyOnce { // ends of transactions take offsets too
		return s.committed(topics...)
	}
	consumer := testkit.Consume(s.t, s.brokers, topics...)
	testkit.Wait(s.t, fmt.Sprintf("%d different records", n), func() (bool, error) {
		ids := make(map[string]bool)
		records := consumer.Records()
		if len(records) < n { // no need for a query, which takes the relay's time
			return false, fmt.Errorf("%d records so far", len(records))
		}
		for _, r := range records {
			ids[header(r, "ce_id")] = true
		}
		if len(ids) < n {
			return false, fmt.Errorf("%d so far", len(ids))
		}
		return s.consumedAll(records, topics...), nil
	})
	return consumer.Records()
}

// consumedAll reports whether the ends of the topics have been reached.
func (s *stage) consumedAll(records []*kgo.Record, topics ...string) bool {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	offsets, err := kadm.NewClient(client).ListEndOffsets(s.t.Context(), topics...)
	require.NoError(s.t, err)
	if offsets.Error() != nil { // of a partition, whose end is not known then
		return false
	}
	var ends int64
	offsets.Each(func(o kadm.ListedOffset) { ends += o.Offset })
	return int64(len(records)) >= ends
}
