package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Rows that were written while the publication did not exist, or while a column had another name, can never be streamed. They
// are read from the table.
func TestALogThatCannotBeStreamedIsHealedFromTheTable(t *testing.T) {
	t.Parallel()
	needsLog(t)
	const create = "CREATE PUBLICATION troupe_outbox FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true)"
	for _, c := range []struct {
		name, before, after string
	}{
		{"the publication is dropped and made again", "DROP PUBLICATION troupe_outbox", create},
		{"a column is renamed and renamed back", "ALTER TABLE troupe.outbox RENAME raw_headers TO raw", "ALTER TABLE troupe.outbox RENAME raw TO raw_headers"},
		{"a column is dropped and added again", "ALTER TABLE troupe.outbox DROP COLUMN raw_headers", "ALTER TABLE troupe.outbox ADD raw_headers bytea"},
	} {
		for _, source := range []relay.Source{relay.WAL, relay.Auto} {
			t.Run(c.name+", "+string(source), func(t *testing.T) {
				t.Parallel()
				s, _ := newServer(t, nil)
				cfg := s.wal()
				cfg.Source = source
				r := s.start(cfg)
				s.waitStream()
				s.insert(s.topic, "k", "0")
				consumer := testkit.Consume(t, s.brokers, s.topic)
				consumer.WaitN(1)
				s.exec("BEGIN; " + c.before + "; INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('" + s.topic + "', 'k', 'Thing', '1'); " + c.after + "; COMMIT")
				s.insert(s.topic, "k", "2")
				testkit.Wait(t, "the rows", func() (bool, error) { return len(values(consumer.Records())) == 3, nil })
				s.exec(c.before)
				s.insert(s.topic, "k", "3")
				s.exec(c.after)
				s.insert(s.topic, "k", "4")
				testkit.Wait(t, "the rows", func() (bool, error) { return len(values(consumer.Records())) == 5, nil })
				require.Equal(t, []string{"0", "1", "2", "3", "4"}, values(consumer.Records()))
				testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
			})
		}
	}
}

// Rows in the log may lack a column that the mapping names, as rows from before the column was added do. The relay is not ready and names
// the column, and goes on when it is started with the mapping of before, until these rows are published.
func TestALogWithoutAColumnOfTheMappingIsReported(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	before := s.mapped("public.outbox", s.routed(nil))
	r := s.start(before)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "0")
	s.exec("ALTER TABLE public.outbox ADD route text DEFAULT 'order'")

	after := s.mapped("public.outbox", s.routed(map[string]string{"route.by.field": "route"}))
	r = s.start(after)
	testkit.Wait(t, "the reason", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), `route.by.field: the table has no column "route"`), nil
	})
	for range 6 { // it stays so, whatever the stream reads before it ends
		at := r.Status().LastErrorAt
		testkit.Wait(t, "another try", func() (bool, error) { return r.Status().LastErrorAt.After(at), nil })
		require.ErrorContains(t, r.Ready(), `route.by.field: the table has no column "route"`)
	}
	require.NoError(t, r.stop())
	r = s.start(before)
	require.Equal(t, []string{"0"}, values(s.gatherEvents(1, topic)))
	require.NoError(t, r.stop())
	r = s.start(after)
	s.insertEvent("order", "k", "1")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}
