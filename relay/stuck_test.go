package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Rows that were written while the publication did not exist, or while a column had another name, can never be streamed. They
// are read from the table.
func TestALogThatCannotBeStreamedIsHealedFromTheTable(t *testing.T) {
	t.Parallel()
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
