package relay_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// eventsOf inserts events of one key in one transaction. A payload that is longer than the topic allows is refused by the broker, and a
// partition that the topic does not have by the relay.
func (s *stage) eventsOf(key string, payloads ...string) {
	s.t.Helper()
	s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, part)
		SELECT troupe.uuidv7(), 'order', $1, 'T', to_jsonb(p), CASE p WHEN 'nowhere' THEN 99 END
		FROM unnest($2::text[]) WITH ORDINALITY AS u (p, n) ORDER BY n`, key, payloads)
}

// A row of a mapped table whose transaction also has a later row of its key that cannot be published does not wait behind that one,
// whatever interrupts the relay between the two: it is published before.
func TestARowOfAMappedTableDoesNotWaitBehindALaterOne(t *testing.T) {
	t.Parallel()
	needsLog(t)
	tooLarge := fmt.Sprintf("%x", incompressible(60_000))
	for _, c := range []struct {
		name, bad string
		table     bool // the rows are in the table when its slot is made
		exactly   bool
		stop      bool // the relay is asked to stop when it has claimed the rows
		lost      bool // the slot is lost before the relay starts again
		options   map[string]string
	}{
		{name: "stopped", bad: "nowhere", stop: true},
		{name: "stopped in the table", bad: "nowhere", stop: true, table: true},
		{name: "exactly once", bad: tooLarge, exactly: true},
		{name: "exactly once and stopped", bad: "nowhere", exactly: true, stop: true},
		{name: "exactly once in the table", bad: tooLarge, exactly: true, table: true},
		{name: "exactly once, stopped and without its slot", bad: "nowhere", exactly: true, stop: true, lost: true},
		{name: "without its slot, with a column of transaction ids", bad: "nowhere", exactly: true, stop: true, lost: true,
			options: map[string]string{"table.field.xid": "xid"}},
		{name: "without its slot, by a timestamp", bad: "nowhere", exactly: true, stop: true, lost: true,
			options: map[string]string{"table.field.position": "", "table.field.event.timestamp": "at"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			topic := s.flow + ".order.events"
			s.provision(kafka.Topic{Name: topic, Partitions: 2, Config: map[string]string{"max.message.bytes": "20000"}})
			s.exec(debeziumTable + `; ALTER TABLE public.outbox ADD part int, ADD n bigint GENERATED ALWAYS AS IDENTITY,
				ADD xid xid8 DEFAULT pg_current_xact_id(), ADD at timestamptz DEFAULT clock_timestamp()`)
			options := map[string]string{"table.fields.additional.placement": "part:partition", "table.field.position": "n"}
			maps.Copy(options, c.options)
			maps.DeleteFunc(options, func(_, value string) bool { return value == "" })
			start := func(failed func(relay.PublishFailure)) running {
				cfg := s.mapped("public.outbox", s.routed(options))
				if c.exactly {
					cfg.Source, cfg.Delivery = relay.WAL, relay.ExactlyOnce
				}
				cfg.Hooks.PublishFailed = failed
				return s.start(cfg)
			}
			insert := func() {
				s.eventsOf("a", "0", c.bad, "2")
				s.eventsOf("b", "0")
			}
			if c.table {
				insert()
			}
			var failures atomic.Int32
			recorded, stopped := make(chan struct{}, 1), make(chan struct{})
			r := start(func(relay.PublishFailure) {
				if c.stop && failures.Add(1) == 1 {
					recorded <- struct{}{}
					<-stopped
				}
			})
			if !c.table {
				s.waitTable(r)
				insert()
			}
			if c.stop {
				<-recorded
				ended := make(chan error, 1)
				go func() { ended <- r.stop() }()
				testkit.Wait(t, "the stop", func() (bool, error) { return r.stopping(), nil })
				close(stopped)
				require.NoError(t, <-ended)
				if c.lost {
					testkit.Wait(t, "an unused slot", func() (bool, error) {
						_, err := s.pool.Exec(context.Background(),
							"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
						return err == nil, err
					})
				}
				r = start(nil)
			}
			consumer := testkit.Consume(t, s.brokers, topic)
			testkit.Wait(t, "the rows before the one at fault", func() (bool, error) {
				came := map[string]bool{}
				for _, record := range consumer.Records() {
					came[string(record.Key)+string(record.Value)] = true
				}
				return came[`a"0"`] && came[`b"0"`], nil
			})
			testkit.Wait(t, "the parked row", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked'") == 1 &&
					s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'waiting'") >= 1, nil
			})
			d := desk.Desk{DB: s.pool}
			d.Table.Name = "public.outbox"
			rows, _, err := d.List(t.Context(), desk.Filter{Status: desk.Parked}, desk.Page{Rows: 10})
			require.NoError(t, err)
			_, err = d.Discard(t.Context(), desk.RowID{ID: rows[0].ID}, admin.Actor{Name: "ann", Reason: "test"})
			require.NoError(t, err)
			var came []string
			testkit.Wait(t, "the row behind", func() (bool, error) {
				came = came[:0]
				for _, record := range ofKey(consumer.Records(), "a") {
					if !strings.Contains(strings.Join(came, ","), string(record.Value)) {
						came = append(came, string(record.Value))
					}
				}
				return len(came) == 2, nil
			})
			require.Equal(t, []string{`"0"`, `"2"`}, came)
		})
	}
}

// Under exactly-once the topic is deleted while a row is in an open Kafka transaction, and the next row of its key finds no topic. The earlier
// row finds none either when the log delivers it again. It is published before the later one when the topic is created again.
func TestRowsOfAMappedTableWhoseTopicWasDeletedKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.flow + ".order.events"
	s.provision(kafka.Topic{Name: topic, Partitions: 1})
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Source, cfg.Delivery = relay.WAL, relay.ExactlyOnce
	cfg.Transactions, cfg.TransactionTimeout = 30*time.Second, 5*time.Minute
	cfg.Retry = retry.Policy{Initial: 50 * time.Millisecond, Cap: 100 * time.Millisecond}
	r := s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "other", "9")
	testkit.Wait(t, "the first transaction", func() (bool, error) { return len(s.committed(topic)) == 1, nil })
	s.insertEvent("order", "k", "0")
	testkit.Wait(t, "a row in an open transaction", func() (bool, error) { return r.Status().Published == 2, nil })
	s.deleteTopic(topic)
	s.insertEvent("order", "k", "1")
	testkit.Wait(t, "both rows recorded", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_failures") == 2, nil
	})
	s.provision(kafka.Topic{Name: topic, Partitions: 1})
	testkit.Wait(t, "both rows", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_failures") == 0 && len(s.committed(topic)) == 2, nil
	})
	require.Equal(t, []string{"0", "1"}, texts(s.committed(topic)))
}
