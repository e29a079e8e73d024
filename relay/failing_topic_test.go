package relay_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// Rows of a topic that the broker refuses may fill every claim. They are tried later, other rows are published, and none is
// parked. A broker refuses the time of sending of each row if the clock of the relay's machine is an hour ahead.
func TestATopicThatTheBrokerAlwaysRefusesHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.UnknownServerError, kerr.InvalidTimestamp} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			testRefusedTopic(t, refusal)
		})
	}
}

func testRefusedTopic(t *testing.T, refusal *kerr.Error) {
	s := newStage(t)
	var ill atomic.Bool
	ill.Store(true)
	s.brokers = refusing(t, "ill", func() *kerr.Error {
		if ill.Load() {
			return refusal
		}
		return nil
	})
	for n := range 50 {
		s.insert("ill", "k"+strconv.Itoa(n%10), strconv.Itoa(n/10))
	}
	s.insert("ill.free", "free", "0")
	waiting := func(condition string) {
		t.Helper()
		testkit.Wait(t, "the first row of each key to wait for its next try", func() (bool, error) {
			return s.count(`SELECT count(*) FROM troupe.outbox_failures
				WHERE status = 'retrying' AND last_error LIKE '%' || $1 || '%' AND `+condition, refusal.Message) == 10, nil
		})
	}
	cfg := s.config()
	cfg.Batch, cfg.UnknownTopic = 10, time.Second
	r := s.start(cfg)
	waiting("true")
	require.NoError(t, r.stop())

	// However slow the machine is, it claims other rows before the next try of these.
	cfg.UnknownTopic, cfg.Retry = 10*time.Hour, retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 8, NoJitter: true}
	s.start(cfg)
	require.Equal(t, []string{"0"}, values(testkit.Consume(t, s.brokers, "ill.free").WaitN(1)))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	waiting("next_try > clock_timestamp() + interval '30 minutes'")
	ill.Store(false)
	s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() WHERE status = 'retrying'")
	records := s.gather(50, "ill")
	for n := range 10 {
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, values(ofKey(records, "k"+strconv.Itoa(n))))
	}
}

// A record has the time of its row if the mapping names a column for it: a row whose time the broker refuses is parked at once. Other rows
// have the time of sending.
func TestARowWhoseTimeTheBrokerRefusesIsParked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var clock atomic.Bool
	clock.Store(true)
	topic := s.flow + ".order.events"
	s.brokers = refusing(t, topic, func() *kerr.Error {
		if clock.Load() {
			return kerr.InvalidTimestamp
		}
		return nil
	})
	s.exec("CREATE TABLE public.timed (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, at timestamptz)")
	s.exec("CREATE TABLE public.plain (LIKE public.timed)")
	for _, table := range []string{"timed", "plain"} {
		options := s.routed(nil)
		if table == "timed" {
			options["table.field.event.timestamp"] = "at"
		}
		cfg := s.mapped("public."+table, options)
		cfg.UnknownTopic = time.Second
		s.waitTable(s.start(cfg))
		s.exec("INSERT INTO public." + table + " VALUES (troupe.uuidv7(), 'order', '" + table + "', 'T', '1', '2100-01-01')")
	}
	const failed = "SELECT count(*) FROM troupe.mapped_failures WHERE table_name = 'public.' || $1 AND status = $2 AND last_error LIKE '%INVALID_TIMESTAMP%'"
	for table, status := range map[string]string{"timed": "parked", "plain": "retrying"} {
		testkit.Wait(t, table+" to be "+status, func() (bool, error) { return s.count(failed, table, status) == 1, nil })
	}
	clock.Store(false)
	require.Equal(t, "plain", string(testkit.Consume(t, s.brokers, topic).WaitN(1)[0].Key))
	require.Equal(t, 1, s.count(failed, "timed", "parked"))
}
