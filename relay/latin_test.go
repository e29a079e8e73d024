package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Keys and headers are UTF-8 in Kafka whatever the database's encoding, and a key waits behind its parked row.
func TestADatabaseThatIsNotInUTF8(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, server := newServer(t, nil)
			s.exec("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
			address := server.URL("latin")
			require.NoError(t, migrations.Up(t.Context(), address))
			s.pool = poolOf(t, address)
			cfg := s.config()
			cfg.Source, cfg.UnknownTopic = source, time.Millisecond
			s.start(cfg)
			insert := func(topic, payload string) { // é is made by the server, whatever the client's encoding
				s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, headers)
					VALUES ($1, 'caf' || chr(233), 'Thing', $2, jsonb_build_object('x-name', 'caf' || chr(233)))`, topic, []byte(payload))
			}
			insert(s.topic, "0")
			consumer := testkit.Consume(t, s.brokers, s.topic)
			first := consumer.WaitN(1)[0]
			require.Equal(t, "café", string(first.Key))
			require.Equal(t, "café", header(first, "ce_subject"))
			require.Equal(t, "café", header(first, "x-name"))
			insert(s.flow+".none.commands", "1")
			testkit.Wait(t, "a parked row", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 1, nil
			})
			insert(s.topic, "2")
			s.insert(s.topic, "free", "3")
			require.Equal(t, []string{"0", "3"}, values(s.gather(2, s.topic)), "the key waits")
		})
	}
}
