package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A trigger may keep rows from being deleted, such as one that marks them instead. They are not published again and again.
func TestRowsThatATriggerKeepsAreReportedAndNotRepeated(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"some": 2, "many": 300} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			cfg := s.config()
			cfg.Source, cfg.Delivery = relay.Poll, relay.AtLeastOnce
			r := s.start(cfg)
			s.insert(s.topic, "k", "first")
			s.waitEmpty()
			s.exec(`CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
				CREATE TRIGGER keep BEFORE DELETE ON troupe.outbox FOR EACH ROW EXECUTE FUNCTION public.keep()`)
			s.exec("INSERT INTO troupe.outbox (topic, key, type) SELECT $1, 'k', 'T' FROM generate_series(1, $2::int)", s.topic, rows)
			consumer := testkit.Consume(t, s.brokers, s.topic)
			testkit.Wait(t, "the reason", func() (bool, error) {
				require.LessOrEqual(t, len(consumer.Records()), 1+rows)
				return strings.Contains(r.Status().LastError, "remove the trigger or rule"), nil
			})
			s.exec("DROP TRIGGER keep ON troupe.outbox")
			s.insert(s.topic, "k", "last")
			s.waitEmpty()
			require.Len(t, consumer.WaitN(rows+2), rows+2)
		})
	}
}
