//go:build unix

package relay_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// awaitMarker writes a row without a key, which waits for no other, and waits until it is published. The relay of a mapped table
// publishes nothing before its slot is made, which waits for all open transactions: these are committed first.
func (h *history) awaitMarker() {
	if h.frozen {
		return
	}
	if isMapped(h.source) {
		h.commitOpen()
	}
	h.setPause(h.desk().Resume)
	const keyless = 0
	h.write(modelStep{Key: keyless, Rows: 1, Mode: "commit"})
	want := fmt.Sprintf("%d-%d", keyless, h.committed[keyless]-1)
	if h.publicationIsOff() {
		return
	}
	h.await("row "+want, func() (bool, error) {
		for _, r := range h.published() {
			if string(r.Value) == want {
				return true, nil
			}
		}
		return false, nil
	})
}

func (h *history) publicationIsOff() bool {
	return h.count("SELECT count(*) FROM pg_publication WHERE pubname = $1 AND NOT pubinsert", h.publication()) > 0
}

func (h *history) await(what string, cond func() (bool, error)) {
	limit := time.NewTimer(modelLimit)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := cond()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			h.rt.Fatalf("waited in vain for %s: %v; the relay's last words: %s", what, err, lastLines(h.child.said.String(), 5))
		}
	}
}

// modelLimit is the time after which a history that makes no progress has failed. It also limits each statement of a history.
const modelLimit = 4 * time.Minute

func modelPool(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(address)
	require.NoError(t, err)
	config.MaxConns = 30
	config.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	config.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(modelLimit.Milliseconds(), 10)
	return poolWith(t, config)
}

func lastLines(text string, n int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// finish ends all faults, gives up the rows that can never be published, and compares topic and table with the model.
func (h *history) finish() {
	h.commitOpen()
	h.setPause(h.desk().Resume)
	if h.frozen {
		h.child.signal(syscall.SIGCONT)
	}
	if h.publicationIsOff() {
		h.restorePublication()
	}
	h.giveUpBadRows()
	total := -len(h.lost)
	for _, n := range h.committed {
		total += n
	}
	h.await(fmt.Sprintf("%d rows", total), func() (bool, error) {
		h.removeBadRows() // a table with a mapping that is read again has them again
		n := 0
		for _, r := range firstCopies(h.published()) {
			if !h.lost[string(r.Value)] {
				n++
			}
		}
		return n >= total, fmt.Errorf("%d of %d rows are published", n, total)
	})
	h.judgeOther()
	h.endRelay(syscall.SIGTERM)
	h.judge(h.published())
}

func (h *history) published() []*kgo.Record { return h.publishedOn(h.topic) }

// publishedOn reads a topic to its end, without the records of aborted transactions.
func (h *history) publishedOn(topic string) (records []*kgo.Record) {
	client, err := kafka.NewClient(h.brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	require.NoError(h.rt, err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(context.Background(), topic)
	require.NoError(h.rt, err)
	require.NoError(h.rt, ends.Error())
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), modelLimit)
	defer cancel()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(h.rt, ctx.Err(), "read %s up to its ends: %v", topic, left)
		require.NoError(h.rt, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return records
}

func firstCopies(records []*kgo.Record) (first []*kgo.Record) {
	seen := map[string]bool{}
	for _, r := range records {
		if !seen[string(r.Value)] {
			first = append(first, r)
		}
		seen[string(r.Value)] = true
	}
	return first
}

// judge fails the history for a row that is lost, that never committed, that overtook another of its key, that came under
// two ids, or that exactly-once published twice.
func (h *history) judge(records []*kgo.Record) {
	ids, next := map[string]string{}, map[int]int{}
	for _, r := range records {
		text, id := string(r.Value), header(r, "ce_id")
		keyText, numberText, ok := strings.Cut(text, "-")
		key, err := strconv.Atoi(keyText)
		n, err2 := strconv.Atoi(numberText)
		if !ok || err != nil || err2 != nil || n >= h.committed[key] {
			h.rt.Fatalf("published without a commit: %.100q", text)
		}
		require.Equal(h.rt, modelKeys[key] == nil, r.Key == nil, "row %s: only a row without a key is a record without one", text)
		if modelKeys[key] != nil {
			require.Equal(h.rt, *modelKeys[key], string(r.Key), "row %s: the record's key", text)
		}
		if first, again := ids[text]; again {
			require.Equal(h.rt, first, id, "row %s: repeated under another id", text)
			require.False(h.rt, isExact(h.source) && !h.healed, "row %s: published twice under exactly-once", text)
			continue
		}
		ids[text] = id
		if modelKeys[key] != nil && h.plan.Order != byNothing && !(h.lost[text] && n < next[key]) {
			for h.lost[fmt.Sprintf("%d-%d", key, next[key])] && next[key] < n {
				next[key]++
			}
			require.Equal(h.rt, next[key], n, "key %d: overtaken by a later row", key)
			next[key]++
		}
	}
	for key, n := range h.committed {
		for i := range n {
			if text := fmt.Sprintf("%d-%d", key, i); !h.lost[text] {
				require.Contains(h.rt, ids, text, "lost")
			}
		}
	}
}
