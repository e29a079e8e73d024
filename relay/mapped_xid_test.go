package relay_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A row may lack the id of its transaction: the column was added without a default, or a service writes null into it. Such a row that
// no slot delivers is read from the table: at the first start, and after the slot was lost.
func TestARowOfAMappedTableWithoutATransactionIDIsPublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD xid xid8")
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.field.xid": "xid"}))
	insert := func(payload string) {
		s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, xid)
			VALUES (troupe.uuidv7(), 'order', 'k', 'T', $1::text::jsonb, NULL)`, payload)
	}
	insert("0")
	s.exec("ALTER TABLE public.outbox ALTER xid SET DEFAULT pg_current_xact_id()")
	r := s.start(cfg)
	s.waitTable(r)
	insert("1")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
	require.NoError(t, r.stop())
	testkit.Wait(t, "an unused slot", func() (bool, error) {
		_, err := s.pool.Exec(context.Background(),
			"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
		return err == nil, err
	})
	insert("2")
	r = s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "k", "3")
	require.Equal(t, []string{"0", "1", "2", "3"}, values(s.gatherEvents(4, topic)))
}

// A row that is restored from a dump while the relay streams has the transaction id of its former cluster, which this one may have passed
// long ago.
func TestRestoredRowsArePublishedFromTheLog(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD xid xid8 DEFAULT pg_current_xact_id()")
	mapped := s.mapped("public.outbox", s.routed(map[string]string{"table.field.xid": "xid"}))
	topic := s.eventTopic("order")
	own := s.wal()
	for n := range 2 {
		first, second := s.start(own), s.start(mapped)
		s.waitStream()
		s.waitTable(second)
		text := fmt.Sprint(n)
		s.exec("INSERT INTO troupe.outbox (xid, topic, key, type, payload) VALUES ('3', $1, 'k', 'T', $2)", s.topic, []byte(text))
		s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, xid)
			VALUES (troupe.uuidv7(), 'order', 'k', 'T', $1::text::jsonb, '3')`, text)
		for _, of := range []string{s.topic, topic} {
			testkit.Wait(t, "row "+text+" of "+of, func() (bool, error) { return slices.Contains(texts(s.committed(of)), text), nil })
		}
		testkit.Wait(t, "stored snapshots", func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.relay_state, troupe.mapped_tables m WHERE relay_state.published IS NOT NULL AND m.published IS NOT NULL") == 1, nil
		})
		require.NoError(t, first.stop())
		require.NoError(t, second.stop())
	}
}
