package main

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestARebuildFromTheCommandLine resets a group by hand, which handles nothing again and is logged, and starts the rebuild that the log
// names; another one is cancelled.
func TestARebuildFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newPayments(t)
	s.exec("CREATE TABLE handled (order_id text, cents int)")
	reader := topics.MustHop(s.hop.Flow(), "summary")
	group := reader.String()
	for _, kind := range []string{reader.Commands(), reader.Events(), reader.DeadLetters()} {
		testkit.Topics(t, s.client, 1, kind)
	}
	log := &logged{text: "a reset does not repeat them; to let handlers of events handle them again, use troupe rebuild start", seen: make(chan struct{})}
	serve := func() (stop func()) {
		p, err := participant.New(participant.Config{Pool: s.pool, Brokers: s.brokers, Hop: reader, Log: zerolog.New(log)})
		require.NoError(t, err)
		participant.On(p, s.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[ChargePayment]) error {
			_, err := tx.Exec(ctx, "INSERT INTO handled VALUES ($1, $2)", e.Body.OrderID, e.Body.Cents)
			return err
		})
		participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[PaymentCharged]) (participant.Outcome, error) {
			return participant.Succeed(PaymentCharged{}), nil
		})
		return s.run(p.Run)
	}
	stop := serve()
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		m := s.message(key, ChargePayment{OrderID: key, Cents: 100})
		m.Topic = s.hop.Events()
		require.NoError(t, s.client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
	}
	s.wait(3, "SELECT count(*) FROM handled")
	s.wait(2, "SELECT count(*) FROM troupe.handlers")
	stop()
	testkit.Wait(t, "the group to take offsets from outside", func() (bool, error) {
		offsets := make(kadm.Offsets)
		offsets.AddOffset(s.hop.Events(), 0, 0, -1)
		err := kadm.NewClient(s.client).CommitAllOffsets(t.Context(), group, offsets)
		return err == nil, err
	})
	s.exec("TRUNCATE handled")

	brokers := []string{"--brokers", strings.Join(s.brokers, ",")}
	start := func(handler string, more ...string) outcome {
		args := []string{"rebuild", "start", "--handler", group + "/" + handler, "--from", "1h", "--actor", "ann", "--reason", "ticket 4711"}
		return s.troupe(append(append(args, brokers...), more...)...)
	}
	o := start("ChargePayment", "--dry-run")
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Contains(t, o.stdout, "Would handle at most 3 messages again with "+group+"/ChargePayment.")
	require.Equal(t, outcome{stdout: "No rebuilds.\n"}, s.troupe("rebuild", "list"))
	o = start("PaymentCharged", "--yes")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "cannot be rebuilt: it handles commands or deadlines")
	o = start("Unknown", "--yes")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "these can be rebuilt: "+group+"/ChargePayment")

	stop = serve()
	select {
	case <-log.seen:
	case <-time.After(4 * time.Minute):
		t.Fatal("the reset is not logged")
	}
	stop()
	s.wait(0, "SELECT count(*) FROM handled")
	o = start("ChargePayment", "--yes")
	require.Equal(t, exitDone, o.status, o.stderr)
	o = start("ChargePayment", "--yes")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "has a rebuild that has not finished")
	require.Contains(t, s.troupe("rebuild", "show", "1").stdout, "waiting")
	serve()
	s.wait(1, "SELECT count(*) FROM troupe.rebuilds WHERE finished_at IS NOT NULL")
	s.wait(3, "SELECT count(*) FROM handled")
	o = s.troupe("rebuild", "show", "1")
	for _, text := range []string{"rebuild 1 of the group " + group + ": finished", "3 of 3, in 1 of 1 partitions", "handled", "ann", "ticket 4711", "without writes to the outbox"} {
		require.Contains(t, o.stdout, text)
	}

	s.exec(`INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time,
			attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
		VALUES ($1, gen_random_uuid(), 0, 1, $2, '\x00', 'o-9', '', '{}', now(), 1, 8, $3, 'timeout', 'none', now(), now())`,
		group, s.hop.Events(), time.Now().Add(time.Hour))
	o = start("ChargePayment", "--yes", "--emit")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "the rebuild would wait: held messages: 1, dead letters of the group that are open, or redriven and not handled yet: 0")
	s.wait(0, "SELECT count(*) FROM troupe.rebuilds WHERE finished_at IS NULL")
	o = start("ChargePayment", "--yes", "--emit", "--wait")
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Contains(t, o.stdout, "1 messages are held: a partition begins when none of its messages is.")
	id := regexp.MustCompile(`Rebuild (\d+) is started`).FindStringSubmatch(o.stdout)[1]
	require.Contains(t, s.troupe("rebuild", "show", id).stdout, "waits until no key is held")
	o = s.troupe("rebuild", "cancel", id, "--reason", "ticket 4712", "--yes")
	require.Equal(t, exitDone, o.status, o.stderr)
	s.wait(2, "SELECT count(*) FROM troupe.rebuilds WHERE finished_at IS NOT NULL")
	require.Contains(t, s.troupe("rebuild", "list").stdout, "cancelled")
	s.wait(1, "SELECT count(*) FROM troupe.rebuild_changes WHERE action = 'cancel' AND reason = 'ticket 4712'")
	s.wait(3, "SELECT count(*) FROM handled")
}

// logged closes seen when a line with the text is written.
type logged struct {
	text string
	seen chan struct{}
	once sync.Once
}

func (l *logged) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.text) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(line), nil
}

func TestTheStartOfARebuildWarnsOfAPasswordThatIsSentUnencrypted(t *testing.T) {
	t.Parallel()
	for tls, warns := range map[string]bool{"false": true, "true": false} {
		o := finish(t, command(t, []string{
			"DATABASE_URL=postgres://127.0.0.1:1/payment", "KAFKA_BROKERS=127.0.0.1:1", "OUTBOX_RELAY_KAFKA_SASL=plain", "OUTBOX_RELAY_KAFKA_USER=relay",
			"OUTBOX_RELAY_KAFKA_PASSWORD=s3cr3t", "OUTBOX_RELAY_KAFKA_TLS=" + tls,
		}, "rebuild", "start", "--handler", "order.summary/PaymentCharged", "--from", "1h", "--actor", "ann", "--reason", "ticket 4711"))
		require.Equal(t, exitFailed, o.status, "there are no servers")
		require.Equal(t, warns, strings.Contains(o.stderr, "kafka-sasl plain without TLS: the password is sent unencrypted"), o.stderr)
	}
}
