//go:build unix

package relay_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func (s *stage) exactly() relay.Config {
	needsLog(s.t)
	cfg := s.config()
	cfg.Source, cfg.Delivery = relay.WAL, relay.ExactlyOnce
	return cfg
}

// waitStreamed waits until every row is published and confirmed.
func (s *stage) waitStreamed() {
	s.t.Helper()
	testkit.Wait(s.t, "everything to be confirmed", func() (bool, error) {
		n := s.count(`SELECT count(*) FROM troupe.outbox o WHERE NOT coalesce(
			(SELECT pg_visible_in_snapshot(o.xid, published) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL), false)`)
		if n > 0 {
			return false, fmt.Errorf("%d rows", n)
		}
		return true, nil
	})
}

// committed reads all records that a consumer of committed messages can read, to the end. No relay may publish meanwhile.
func (s *stage) committed(names ...string) (records []*kgo.Record) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers, kgo.ConsumeTopics(names...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	require.NoError(s.t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	var ends kadm.ListedOffsets
	// A partition whose end is not known would pass for an empty one. A broker does not know a topic yet that another one has just made.
	testkit.Wait(s.t, "the end of each partition", func() (bool, error) {
		var err error
		if ends, err = admin.ListEndOffsets(s.t.Context(), names...); err == nil {
			err = ends.Error()
		}
		return err == nil, err
	})
	testkit.Wait(s.t, "no open transaction", func() (bool, error) {
		stable, err := admin.ListCommittedOffsets(s.t.Context(), names...)
		if err != nil {
			return false, err
		}
		same := true
		stable.Each(func(o kadm.ListedOffset) {
			end, _ := ends.Lookup(o.Topic, o.Partition)
			same = same && o.Offset >= end.Offset
		})
		return same, nil
	})
	left := make(map[string]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[fmt.Sprint(o.Topic, o.Partition)] = o.Offset - 1
		}
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(s.t, fetches.Err())
		for _, r := range fetches.Records() {
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if at := fmt.Sprint(r.Topic, r.Partition); r.Offset >= left[at] {
				delete(left, at)
			}
		}
	}
	return records
}

func (v verdict) requireExact(t testing.TB) {
	t.Helper()
	v.requireSound(t)
	require.Zero(t, v.repeated, "doubled")
}

// settleExactly waits until all rows are published, and checks the records that a consumer sees.
func (s *stage) settleExactly(r running, committed map[string]int) {
	s.t.Helper()
	s.waitStreamed()
	require.NoError(s.t, r.stop())
	v := judge(s.committed(s.topic), committed)
	s.t.Logf("%d rows: %+v", total(committed), v)
	v.requireExact(s.t)
}

// streaming starts a relay and waits until it has created its slot, so that all later rows are published from the log.
func (s *stage) startStreaming(cfg relay.Config) running {
	s.t.Helper()
	r := s.start(cfg)
	s.waitSlot()
	return r
}

func (s *stage) waitSlot() {
	s.t.Helper()
	testkit.Wait(s.t, "a stream", func() (bool, error) {
		return s.count(`SELECT count(*) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL`) == 1, nil
	})
}

// A row is recorded as failed before its transaction ends. If the relay dies in between, the next one reads the row in the
// log again, and publishes it once, from its record.
func TestExactlyOnceSurvivesAKillBehindFailures(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	first := s.startStreaming(s.exactly())
	require.NoError(t, first.stop())
	late := s.flow + ".late.commands"
	committed := s.fill(s.topic, 5, 100)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'late', 'Thing', '0'), ($1, NULL, 'Thing', '0')`, late)
	s.insert(s.topic, "k1", strconv.Itoa(committed["k1"]))
	committed["k1"]++
	victim := s.spawn(childConfig{Holder: "victim", Lease: 1500 * time.Millisecond, KillAt: "failure", KillNth: 1, Exactly: time.Minute})
	require.Equal(t, syscall.SIGKILL, victim.wait(waitLimit).Signal())
	require.Positive(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))

	s.provision(kafka.Topic{Name: late, Partitions: 1})
	s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() WHERE status = 'retrying'")
	r := s.start(s.exactly())
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 0, nil })
	s.waitStreamed()
	require.NoError(t, r.stop())
	judge(s.committed(s.topic), committed).requireExact(t)
	require.Len(t, s.committed(late), 2)
}

// A server that was set back to an earlier disk image still has its name and its timeline, and its log passes the checkpoint
// again with other transactions. They are not taken for published ones.
func TestExactlyOnceDoesNotTrustTheCheckpointOfAnotherHistory(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	committed := s.fill(s.topic, 5, 100)
	var lsn, system string
	var timeline int32
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT pg_current_wal_flush_lsn()::text, system_id, timeline
		FROM troupe.relay_state`).Scan(&lsn, &system, &timeline))
	client, err := kafka.NewClient(s.brokers)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{
		Topic: topics.Relay(cfg.Slot), Key: []byte(cfg.Slot),
		Value: fmt.Appendf(nil, `{"lsn":%q,"system":%q,"timeline":%d,"position":1,"id":"01a1ffb2-4031-704f-a29c-2f22c4b1d21d","committed":"2026-01-02T03:04:05.678901Z"}`, lsn, system, timeline),
	}).FirstErr())
	r := s.start(cfg)
	testkit.Wait(t, "a word about repeats", func() (bool, error) { return strings.Contains(r.Status().Repeats, "lost"), nil })
	s.settleExactly(r, committed)
}

func TestExactlyOnceNeedsTheLog(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.exactly()
	cfg.Source = relay.Poll
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, "exactly-once needs source wal")
}

func TestExactlyOnceKeepsItsCheckpointWithTheRows(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	r := s.startStreaming(s.exactly())
	committed := s.fill(s.topic, 20, 500)
	for range 50 {
		s.insert(s.topic, "k1", strconv.Itoa(committed["k1"]))
		committed["k1"]++
	}
	testkit.Wait(t, "a checkpoint", func() (bool, error) { return r.Status().Checkpoint != "", nil })
	require.Equal(t, relay.ExactlyOnce, r.Status().Delivery)
	s.settleExactly(r, committed)

	// From the start of the slot again, as if Postgres had confirmed nothing.
	cfg := s.exactly()
	again := s.start(cfg)
	committed["k1"]++
	s.insert(s.topic, "k1", strconv.Itoa(committed["k1"]-1))
	s.settleExactly(again, committed)
}

// TestACheckpointThatDoesNotComeIsReadAgain: a relay that waited for it forever would log and publish nothing.
func TestACheckpointThatDoesNotComeIsReadAgain(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer cluster.Close()
	var reads atomic.Bool // otherwise no fetched record is delivered
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if reads.Load() {
			return nil, nil, false
		}
		return r.ResponseKind(), nil, true
	})
	s := &stage{t: t, pool: testkit.Database(t), brokers: cluster.ListenAddrs(), flow: testkit.Flow(t)}
	s.topic = s.createTopic("main", 3)
	r, err := relay.New(s.exactly())
	require.NoError(t, err)
	r.Reading(time.Second)
	run := s.run(r)
	testkit.Wait(t, "it gives up", func() (bool, error) { return strings.Contains(r.Status().LastError, "read the checkpoint"), nil })
	reads.Store(true)
	s.waitSlot()
	s.insert(s.topic, "k1", "0")
	s.settleExactly(run, map[string]int{"k1": 1})
}

// A kill at any arrow of the diagram, while a backlog is published and writers write.
func TestExactlyOnceSurvivesAKillAtAnyArrow(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, arrow := range []struct {
		at  string
		nth int
	}{{"before send", 4}, {"after send, before ack", 4}, {"after ack, before delete", 4}, {"before the end", 2}, {"after delete", 2}} {
		t.Run(arrow.at, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			first := s.startStreaming(s.exactly())
			require.NoError(t, first.stop())
			committed := s.fill(s.topic, 20, 500)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded := make(chan map[string]int)
			go func() { loaded <- s.load(ctx, 3, 5) }()
			victim := s.spawn(childConfig{
				Holder: "victim", Lease: 1500 * time.Millisecond, KillAt: arrow.at, KillNth: arrow.nth, Exactly: time.Minute,
			})
			require.Equal(t, syscall.SIGKILL, victim.wait(waitLimit).Signal())
			cancel()
			maps.Copy(committed, <-loaded)
			s.settleExactly(s.start(s.exactly()), committed)
		})
	}
}

// TROUPE_SOAK sets the duration.
func TestExactlyOnceSoak(t *testing.T) {
	t.Parallel()
	length := 5 * time.Second
	if text := os.Getenv("TROUPE_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	s := newStage(t)
	first := s.startStreaming(s.exactly())
	require.NoError(t, first.stop())
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 6, 5) }()
	kills := 0
	for ; ctx.Err() == nil; kills++ {
		victim := s.spawn(childConfig{Holder: "victim-" + strconv.Itoa(kills), Lease: 500 * time.Millisecond, Exactly: time.Minute})
		select {
		case <-time.After(1200*time.Millisecond + time.Duration(kills%7)*37*time.Millisecond):
		case <-ctx.Done():
		}
		victim.signal(syscall.SIGKILL)
		require.Equal(t, syscall.SIGKILL, victim.wait(waitLimit).Signal())
	}
	committed := <-loaded
	t.Logf("%d kills", kills)
	s.settleExactly(s.start(s.exactly()), committed)
}

func TestExactlyOnceSurvivesCutsToTheBroker(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	wire := &wire{}
	cfg := s.exactly()
	cfg.Kafka = []kgo.Opt{kgo.Dialer(wire.dial)}
	r := s.startStreaming(cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 6, 5) }()
	cuts := 0
	for ; ctx.Err() == nil; cuts++ {
		select {
		case <-time.After(time.Duration(200+cuts%5*41) * time.Millisecond):
		case <-ctx.Done():
		}
		wire.cut()
		if cuts%4 == 3 {
			select {
			case <-time.After(700 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		wire.mend()
	}
	committed := <-loaded
	t.Logf("%d cuts", cuts)
	s.settleExactly(r, committed)
}

// The leader is frozen within a transaction while a standby takes over and publishes, for less or more than the time-out. (A
// time-out of 10 min is longer than any wait here, so the standby must end the transaction.) Then the leader continues: its
// next step is the end of the transaction, or rows.
func TestExactlyOnceSurvivesAFrozenLeader(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct {
		at      string
		timeout time.Duration
		frozen  time.Duration
	}{
		{"before the end", 10 * time.Minute, 0},
		{"before the end", 5 * time.Second, 7 * time.Second},
		{"after send, before ack", 10 * time.Minute, 0},
		{"after send, before ack", 5 * time.Second, 7 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s, time-out %s", c.at, c.timeout), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			first := s.startStreaming(s.exactly())
			require.NoError(t, first.stop())
			committed := s.fill(s.topic, 10, 300)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded := make(chan map[string]int)
			go func() { loaded <- s.load(ctx, 3, 5) }()
			frozen := s.spawn(childConfig{
				Holder: "frozen", Lease: 500 * time.Millisecond, Exactly: c.timeout, KillAt: c.at, KillNth: 3, Freeze: true,
			})
			s.waitLeader("frozen")
			cfg := s.exactly()
			cfg.Holder, cfg.TransactionTimeout = "heir", 10*time.Minute // if it ran out, the leader could get the lead back
			heir := s.start(cfg)
			waitRole(t, heir, relay.Active)
			testkit.Wait(t, "rows of the successor", func() (bool, error) { return heir.Status().Deleted > 100, nil })
			select {
			case <-time.After(c.frozen):
			case <-t.Context().Done():
			}
			frozen.signal(syscall.SIGCONT)
			now := heir.Status().Deleted
			// A standby whose own transaction ends otherwise may lose the lead to the relay that was frozen: rows are
			// published once all the same.
			testkit.Wait(t, "more rows of the successor, or another leader", func() (bool, error) {
				at := heir.Status()
				return at.Deleted > now+100 || at.Role == relay.Standby, nil
			})
			cancel()
			maps.Copy(committed, <-loaded)
			s.waitStreamed()
			frozen.signal(syscall.SIGTERM)
			require.Equal(t, 0, frozen.wait(waitLimit).ExitStatus())
			s.settleExactly(heir, committed)
		})
	}
}

// A row that cannot be published is recorded, its key waits, and all others are published once.
func TestExactlyOnceParksARowAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	small := s.flow + ".small.commands"
	s.provision(kafka.Topic{Name: small, Partitions: 1, Config: map[string]string{"max.message.bytes": "4096"}})
	cfg := s.exactly()
	cfg.Kafka = []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}
	cfg.Retry.Attempts, cfg.UnknownTopic = 1, time.Millisecond
	r := s.startStreaming(cfg)
	committed := s.fill(small, 5, 40)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES
		($1, 'k1', 'Thing', convert_to(repeat('x', 20000), 'UTF8')),
		($1, NULL, 'Thing', convert_to(repeat('y', 20000), 'UTF8')),
		($2, 'k2', 'Thing', 'nowhere')`, small, s.flow+".none.commands")
	s.insert(small, "k1", strconv.Itoa(committed["k1"])) // waits behind the first
	for range 30 {
		s.insert(small, "k3", strconv.Itoa(committed["k3"]))
		committed["k3"]++
	}
	s.waitStreamed()
	testkit.Wait(t, "three rows parked", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 3, nil
	})
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'waiting' AND order_key = 'k1'"))
	judge(s.committed(small), committed).requireExact(t)

	// Once the first row is published, the rows behind it are published too, once.
	s.exec("DELETE FROM troupe.outbox_failures WHERE status = 'parked' AND order_key = 'k1'")
	committed["k1"]++
	testkit.Wait(t, "the row behind", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE order_key = 'k1'") == 0, nil
	})
	require.NoError(t, r.stop())
	judge(s.committed(small), committed).requireExact(t)
}

// The transaction that contains a refused row is aborted, and read again from its beginning: rows before the refused one then
// do not wait behind it.
func TestExactlyOnceWhatStandsBeforeAParkedRowGoesOut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	small := s.flow + ".small.commands"
	s.provision(kafka.Topic{Name: small, Partitions: 1, Config: map[string]string{"max.message.bytes": "4096"}})
	s.exec("CREATE TABLE public.noted (payload text)")
	s.exec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.noted SELECT convert_from(payload, 'UTF8') FROM troupe.outbox o WHERE o.position = new.position AND new.status = 'waiting';
		RETURN new; END $$`)
	s.exec("CREATE TRIGGER note AFTER INSERT ON troupe.outbox_failures FOR EACH ROW EXECUTE FUNCTION note()")
	cfg := s.exactly()
	cfg.Kafka = []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}
	cfg.Retry.Attempts = 1
	r := s.startStreaming(cfg)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'k1', 'Thing', convert_to(text, 'UTF8') FROM unnest(ARRAY['0', '1', repeat('x', 20000), '2']) AS text`, small)
	testkit.Wait(t, "the row behind to wait", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'waiting'") == 1, nil
	})
	s.waitStreamed()
	judge(s.committed(small), map[string]int{"k1": 2}).requireExact(t)
	require.NoError(t, r.stop())
	require.Equal(t, 1, s.count("SELECT count(*) FROM noted"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM noted WHERE payload = '2'"))
}

// One Postgres transaction is one in Kafka, however many windows it fills, and transactions around it are not lost.
func TestExactlyOnceKeepsALargeTransactionWhole(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.startStreaming(s.exactly())
	s.insert(s.topic, "k1", "0")
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'b' || n % 10, 'Thing', convert_to((n / 10)::text, 'UTF8') FROM generate_series(0, 29999) AS n`, s.topic)
	s.insert(s.topic, "k1", "1")
	committed := map[string]int{"k1": 2}
	for k := range 10 {
		committed["b"+strconv.Itoa(k)] = 3000
	}
	s.settleExactly(r, committed)
}

// A Postgres transaction that does not fit stops the relay with an error that says what to do, and no row of it is visible.
func TestExactlyOnceStopsAtATransactionThatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.exactly()
	cfg.TransactionTimeout, cfg.Transactions = 5*time.Second, 20*time.Millisecond
	cfg.Hooks.Acked = func(int, time.Duration) { time.Sleep(1200 * time.Millisecond) } //nolint:forbidigo // a slow broker
	slow, err := relay.New(cfg)
	require.NoError(t, err)
	first := s.startStreaming(s.exactly())
	require.NoError(t, first.stop())
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'b' || n % 10, 'Thing', convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(0, 29999) AS n`, s.topic)
	err = slow.Run(t.Context())
	require.ErrorContains(t, err, "too large for a Kafka transaction of 5s")
	require.ErrorContains(t, err, "transaction.max.timeout.ms")
	require.Empty(t, s.committed(s.topic))

	// With a longer time-out it is published.
	r := s.start(s.exactly())
	s.waitStreamed()
	require.NoError(t, r.stop())
	require.Len(t, s.committed(s.topic), 30_000)
}

func TestExactlyOnceSaysThatTheBrokerAllowsNoSuchTimeOut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.exactly()
	cfg.TransactionTimeout = 24 * time.Hour
	r, err := relay.New(cfg)
	require.NoError(t, err)
	require.ErrorContains(t, r.Run(t.Context()), "more than the broker allows")
}

// With TROUPE_KAFKA_RESTART, a command that kills the broker and one that starts it ("apachekafka.sh kill …; … start …").
func TestExactlyOnceSurvivesARestartOfTheBroker(t *testing.T) {
	restart := os.Getenv("TROUPE_KAFKA_RESTART")
	if restart == "" {
		t.Skip("it needs a broker that may be restarted: .ci/run has one")
	}
	s := newStage(t)
	r := s.startStreaming(s.exactly())
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 6, 5) }()
	testkit.Wait(t, "rows sent", func() (bool, error) { return r.Status().Published > 200, nil })
	out, err := exec.Command("bash", "-c", restart).CombinedOutput()
	require.NoError(t, err, strings.TrimSpace(string(out)))
	t.Logf("the broker was restarted: %s", strings.TrimSpace(string(out)))
	s.settleExactly(r, <-loaded)
}

// Under load every window of rows may end within a transaction, so that a Kafka transaction is open after each window. Failed rows that are
// due do not wait until the load ends.
func TestDueRowsDoNotWaitForTheEndOfTheLoadUnderExactlyOnce(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	const transactions, size = 20, 1501 // rows of a transaction; a window has 2000
	var due, gone, sent atomic.Int64
	cfg := s.exactly()
	cfg.Transactions, cfg.UnknownTopic = 5*time.Millisecond, time.Hour
	cfg.Hooks.BeforeSend = func(rows int) {
		switch {
		case due.Load() == 1 && rows >= 100: // the first rows of the load: their Kafka transaction is open
			due.Store(2)
			s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() + interval '1100 ms'")
			testkit.Wait(t, "the failed row to be due", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE next_try <= clock_timestamp()") == 1, nil
			})
		case due.Load() == 2 && gone.Load() == 0 && s.count("SELECT count(*) FROM troupe.outbox_failures") == 0:
			gone.Store(sent.Load())
		}
		sent.Add(int64(rows))
	}
	r := s.startStreaming(cfg)
	late := s.flow + ".late.commands"
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'late', 'Thing', '0')", late)
	testkit.Wait(t, "a failed row", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'retrying'") == 1, nil
	})
	s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() + interval '1 hour'")
	s.provision(kafka.Topic{Name: late, Partitions: 1})
	r.Pause()
	for range transactions {
		s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, 'k' || n, 'Thing', '0' FROM generate_series(1, $2::int) n", s.topic, size)
	}
	due.Store(1)
	r.Resume()
	testkit.Wait(t, "the load", func() (bool, error) { return len(s.committed(s.topic)) == transactions*size, nil })
	require.Positive(t, gone.Load(), "rows that were sent before the failed row was published")
	require.Less(t, gone.Load(), int64(transactions*size))
	require.Len(t, s.committed(late), 1)
}
