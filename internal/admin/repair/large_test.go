package repair_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

// A producer chooses the keys and ids of messages, which may have almost a megabyte each.
func TestAPageOfLargeKeysHasFewerRows(t *testing.T) {
	t.Parallel()
	const rows, size = 20, 900_000
	s := newStage(t)
	s.exec(`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			key, headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		SELECT 'order.payment', 'charge', 'poison', 'no', 1, 'order.payment.commands', gen_random_uuid(), 0, n,
			convert_to(repeat('k', $2), 'UTF8'), '', '{}', 'm-' || n, 'Charge', 'c', now(), now()
		FROM generate_series(1, $1) AS n`, rows, size)
	s.exec(`INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time,
			attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at, message_id)
		SELECT 'order.payment', gen_random_uuid(), 0, n, 'order.payment.commands', sha256(int4send(n)),
			convert_to(repeat('k', $2), 'UTF8'), '', '{}', now(), 1, 8, now(), 'transient', 'no', now(), now(), 'm-' || n
		FROM generate_series(1, $1) AS n`, rows, size)
	desk, seen := s.desk, map[string]int{}
	for name, list := range map[string]func(after string) (keys []repair.Key, ids []string, next string, err error){
		"dead letters": func(after string) (keys []repair.Key, ids []string, next string, err error) {
			letters, next, err := desk.List(t.Context(), repair.Filter{}, repair.Page{After: after})
			for _, l := range letters {
				keys, ids = append(keys, l.Key), append(ids, l.ID.String())
			}
			return keys, ids, next, err
		},
		"held keys": func(after string) (keys []repair.Key, ids []string, next string, err error) {
			held, next, err := desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{After: after})
			for _, k := range held {
				keys, ids = append(keys, k.Key), append(ids, k.Place.String())
			}
			return keys, ids, next, err
		},
	} {
		var all []string
		for after := ""; ; {
			keys, ids, next, err := list(after)
			require.NoError(t, err)
			bytes := 0
			for _, key := range keys {
				require.Equal(t, strings.Repeat("k", size), string(key))
				bytes += len(key)
			}
			require.LessOrEqual(t, bytes, admin.PageBytes+size, name)
			all = append(all, ids...)
			if after = next; after == "" {
				break
			}
		}
		for _, id := range all {
			seen[name+id]++
		}
		require.Len(t, all, rows, name)
	}
	require.Len(t, seen, 2*rows, "no row is on two pages")
}

// A service chooses the text of an error.
func TestAPageOfCausesWithLargeErrorsHasFewer(t *testing.T) {
	t.Parallel()
	const rows, size = 60, 60_000
	s := newStage(t)
	s.exec(`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		SELECT 'order.payment', 'charge ' || n, 'poison', repeat('e', $2), 1, 'order.payment.commands', gen_random_uuid(), 0, n,
			'', '{}', 'm-' || n, 'Charge', 'c', now(), now()
		FROM generate_series(1, $1) AS n`, rows, size)
	seen := make(map[string]int)
	for after := ""; ; {
		causes, next, err := s.desk.Causes(t.Context(), repair.Filter{}, repair.Page{After: after})
		require.NoError(t, err)
		require.NotEmpty(t, causes)
		require.LessOrEqual(t, len(causes)*size, admin.PageBytes+size)
		for _, c := range causes {
			seen[c.Handler]++
		}
		if after = next; after == "" {
			break
		}
	}
	require.Len(t, seen, rows)
	for handler, times := range seen {
		require.Equal(t, 1, times, handler)
	}
}

// TestTheHistoryOfEditsHasALimitOfBytes: an edit may have 8 MiB, and each stays in the history.
func TestTheHistoryOfEditsHasALimitOfBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "cents must not be negative", true)
	s.participant()
	s.send(s.command("a", Charge{N: 1, Cents: -5}))
	s.waitCount(1, openLetters)
	id := s.letters()[0].ID
	for range 5 {
		s.exec(`INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id, payload_before, payload_after)
			VALUES ('ann', 'edit', 'ticket 4711', $1, 'g', 't', 0, 1, 'm', convert_to('"' || repeat('x', 6000000) || '"', 'UTF8'), convert_to('"' || repeat('y', 6000000) || '"', 'UTF8'))`, id)
	}
	s.exec(`INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id, payload_before, payload_after)
		VALUES ('ann', 'edit', 'the last', $1, 'g', 't', 0, 1, 'm', NULL, '"z"')`, id)
	l, err := s.desk.Show(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, l.History, 6)
	for i, a := range l.History {
		if i < 3 {
			require.Nil(t, a.Before.JSON, i)
			require.Equal(t, "not read: the payloads of this edit and of the later ones have more than 32 MiB", a.After.Note)
			require.Equal(t, []any{6_000_002, "json"}, []any{a.After.Bytes, a.After.Format})
		} else if i < 5 {
			require.Len(t, a.Before.JSON, 6_000_002, i)
		}
	}
	require.Equal(t, "none", l.History[5].Before.Format)
	require.Equal(t, `"z"`, string(l.History[5].After.JSON))
}

// TestAMessageInManyPlacesFillsNoMemory: a producer may send any number of messages with one id, and a service may write as many rows. The console
// shows where it found an id.
func TestAMessageInManyPlacesFillsNoMemory(t *testing.T) { // not parallel, since it measures the memory of the process
	const rows, id = 2000, "5f0c7d3e-7d0e-4d6b-9a57-0a1b2c3d4e5f"
	s := newStage(t)
	s.exec(`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		SELECT 'order.payment', 'charge', 'poison', repeat('e', 60000), 1, 'order.payment.commands', gen_random_uuid(), 0, n,
			'', '{}', $2, 'Charge', 'c', now(), now()
		FROM generate_series(1, $1) AS n`, rows, id)
	s.exec(`INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, headers, payload, message_time, max_attempts)
		SELECT 'order.payment', gen_random_uuid(), 0, n, 'order.payment.commands', sha256(int4send(n)), $2, '{}', now(), 8
		FROM generate_series(1, $1) AS n`, rows, envelope.MarshalHeaders([]envelope.Header{{Key: "ce_id", Value: []byte(id)}}))
	s.exec(`INSERT INTO troupe.inbox (consumer_group, message_id) SELECT 'group-' || n, $2 FROM generate_series(1, $1) AS n`, rows, id)
	const large = 8_000_000
	s.exec(`INSERT INTO troupe.local_work (position, consumer_group, id, topic, type, headers, payload, created_at, hold_key, attempts,
			last_error, next_try, first_failed_at, last_failed_at)
		SELECT n, 'order.local', $2, 'order.local.commands', 'Charge', '{}', convert_to(repeat('p', $3), 'UTF8'), now(), sha256(int4send(n)), 1,
			'no', now(), now(), now()
		FROM generate_series(1, $1) AS n`, 20, id, large)
	find := func() (counts map[string]int, errors int) {
		before := liveHeap()
		found, more, err := s.desk.Find(t.Context(), id)
		require.NoError(t, err)
		require.True(t, more)
		require.Less(t, liveHeap()-before, int64(5*large))
		counts = make(map[string]int)
		for _, one := range found {
			errors += len(one.Error)
			counts[strings.TrimRight(one.Group, "0123456789")+" "+string(one.State)]++
		}
		return counts, errors
	}
	counts, errors := find()
	require.LessOrEqual(t, errors, admin.PageBytes+100_000)
	require.Equal(t, 20, counts["order.local held"])
	require.Equal(t, 1000, counts["order.payment held"])
	require.NotZero(t, counts["order.payment dead letter"])
	require.Zero(t, counts["group- handled"], "a dead letter that is not read has an inbox row, too")
	s.exec("DELETE FROM troupe.dead_letters")
	counts, _ = find()
	require.Equal(t, 1000, counts["group- handled"])
}

// TestADeadLetterThatIsNotReadIsNotHandled: messages of several sources have one id, and the errors of their dead letters have more than a page.
func TestADeadLetterThatIsNotReadIsNotHandled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const rows = 50
	s.exec(`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		SELECT 'group-' || n, 'charge', 'poison', repeat('e', 60000), 1, 'order.payment.commands', gen_random_uuid(), 0, n, '', '{}', '17', 'Charge', 'c', now(), now()
		FROM generate_series(1, $1) AS n`, rows)
	s.exec("INSERT INTO troupe.inbox (consumer_group, message_id) SELECT 'group-' || n, '17' FROM generate_series(1, $1) AS n", rows)
	found, more, err := s.desk.Find(t.Context(), "17")
	require.NoError(t, err)
	require.True(t, more)
	for _, one := range found {
		require.Equal(t, repair.Dead, one.State, one.Group)
	}
}

// A service may write messages of 8 MiB. A retry of all that wait for their next try does not read their payloads, and has at a time no more of
// their other columns than a page.
func TestLargeMessagesAreRetriedInSmallTransactions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload, header int
		atOnce          int // entries in the largest transaction
	}{
		"large payloads": {3_000_000, 0, 6},
		"large headers":  {0, 3_000_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(`INSERT INTO troupe.local_work (position, consumer_group, id, topic, type, headers, payload, created_at, hold_key, attempts,
					last_error, next_try, first_failed_at, last_failed_at)
				SELECT n, 'order.local', gen_random_uuid(), 'order.local.commands', 'Charge', jsonb_build_object('h', repeat('h', $2)),
					convert_to(repeat('p', $1), 'UTF8'), now(), sha256(int4send(n)), 1, 'no', now() + interval '1 hour', now(), now()
				FROM generate_series(1, 6) AS n`, c.payload, c.header)
			n, err := s.desk.Retry(t.Context(), repair.HeldFilter{}, admin.Actor{Name: "ann", Reason: "ticket 7"})
			require.NoError(t, err)
			require.Equal(t, 6, n)
			require.Equal(t, c.atOnce, s.count("SELECT max(n) FROM (SELECT count(*) AS n FROM troupe.repairs GROUP BY xmin) AS t"))
			require.Zero(t, s.count("SELECT count(*) FROM troupe.local_work WHERE next_try > now()"))
		})
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
