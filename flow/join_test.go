package flow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

const bothShipped = `success o-1 Shipped {"Cents":999,"Titles":2}`

// TestAJoinIsDispatchedOnceInAnyOrder sends the messages in both orders, and repeats each under its own id and under others.
func TestAJoinIsDispatchedOnceInAnyOrder(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t))
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		for _, again := range []bool{false, true} {
			key := fmt.Sprintf("o-%v-%t", order[0], again)
			parts := []envelope.Message{event(s, "payment", key, Paid{999}), event(s, "inventory", key, Reserved{2})}
			twins := []envelope.Message{event(s, "payment", key, Paid{1}), event(s, "inventory", key, Reserved{1})}
			for _, i := range order {
				s.Send(parts[i])
				if again {
					s.Send(parts[i], twins[i])
				}
			}
			s.Settle()
			if again {
				s.Send(parts[0], parts[1], twins[0], twins[1])
				s.Settle()
			}
			require.Equal(t, 1, count(t, s, "SELECT count(*) FROM shipments WHERE order_id = $1", key), key)
		}
	}
	answers := s.Entries(s.Hop.Events())
	require.Len(t, answers, 4)
	for _, m := range answers {
		require.Equal(t, envelope.Success, m.Outcome)
		require.JSONEq(t, `{"Cents":999,"Titles":2}`, string(m.Payload), "the first of each type")
	}
	require.Empty(t, s.Deadlines())
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.join_parts"))
	s.Replay()
	s.Settle()
	require.Equal(t, 4, count(t, s, "SELECT count(*) FROM shipments"))
}

// TestAFailureBreaksAJoin sends the failure before the other messages, between them, and too late.
func TestAFailureBreaksAJoin(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t))
	first, between, late := "first", "between", "late"
	s.Send(failure(s, "payment", first, Declined{"limit"}))
	s.Settle()
	s.Send(event(s, "inventory", between, Reserved{1}))
	s.Settle()
	require.Len(t, s.Deadlines(), 1)
	s.Send(failure(s, "payment", between, Declined{"limit"}), event(s, "payment", late, Paid{1}), event(s, "inventory", late, Reserved{1}))
	s.Settle()
	for _, key := range []string{first, between, late} {
		s.Send(event(s, "inventory", key, Reserved{1}), event(s, "payment", key, Paid{1}), failure(s, "payment", key, Declined{"again"}))
	}
	s.Settle()
	require.Equal(t, []string{`success late Shipped {"Cents":1,"Titles":1}`}, said(s))
	require.Empty(t, s.Deadlines())
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.join_parts"))
	require.Equal(t, 2, count(t, s, "SELECT count(*) FROM troupe.joins WHERE status = 'broken' AND broken_by LIKE '%.payment.events Declined'"))
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.joins WHERE status = 'complete'"))
}

// TestAJoinExpires checks that a join expires once and names the missing messages, and that the last message arrives too
// late.
func TestAJoinExpires(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t))
	s.Send(event(s, "inventory", "o-1", Reserved{2}), event(s, "payment", "o-2", Paid{1}), event(s, "inventory", "o-2", Reserved{1}))
	s.Settle()
	require.Len(t, s.Deadlines(), 1)
	s.Advance(59 * time.Minute)
	s.Settle()
	require.Equal(t, []string{`success o-2 Shipped {"Cents":1,"Titles":1}`}, said(s))
	s.Advance(time.Minute)
	s.Settle()
	expired := fmt.Sprintf(`failure o-1 TimedOut {"Missing":["%s.payment.events Paid"]}`, s.Hop.Flow())
	require.Equal(t, expired, said(s)[1])
	s.Send(event(s, "payment", "o-1", Paid{999}), event(s, "inventory", "o-1", Reserved{2}))
	s.Settle()
	require.Len(t, said(s), 2)
	require.Empty(t, s.Deadlines())
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.joins WHERE status = 'expired' AND key = 'o-1'"))
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.join_parts"))
}

// TestAJoinIsWholeWhereverItIsInterrupted cuts the connection at each statement of the first message, of the last one and of
// the failure.
func TestAJoinIsWholeWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	effect := testkit.Query(`
		SELECT j.status, j.arrived::text LIKE '%Paid%', j.arrived::text LIKE '%Reserved%',
		       (SELECT count(*) FROM troupe.join_parts), (SELECT count(*) FROM troupe.deadlines), (SELECT count(*) FROM shipments)
		FROM troupe.joins AS j`)
	for name, given := range map[string]func(s *testkit.Stage) envelope.Message{
		"first": func(s *testkit.Stage) envelope.Message { return event(s, "payment", "o-1", Paid{999}) },
		"last": func(s *testkit.Stage) envelope.Message {
			s.Send(event(s, "inventory", "o-1", Reserved{2}))
			s.Settle()
			return event(s, "payment", "o-1", Paid{999})
		},
		"failure": func(s *testkit.Stage) envelope.Message {
			s.Send(event(s, "inventory", "o-1", Reserved{2}))
			s.Settle()
			return failure(s, "payment", "o-1", Declined{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.CrashAtEveryStep(t, shippingStage(t), given, effect)
		})
	}
}

// TestAJoinThatFailsIsParkedWithItsLastMessage checks that a join whose handler fails is parked with the message that
// completes it, and that a redrive of that message completes it.
func TestAJoinThatFailsIsParkedWithItsLastMessage(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	s := testkit.NewStage(t, shippingStage(t, func(c *testkit.StageConfig) {
		c.Handlers = func(s *testkit.Stage, p *participant.Participant) {
			flow.OnJoin(bind(t, p, shipping(s.Hop.Flow())), "ready", flow.Ends{
				Expired: tooLate,
				Complete: func(ctx context.Context, tx pgx.Tx, j flow.Joined) (participant.Outcome, error) {
					if broken.Load() {
						return participant.Outcome{}, errors.New("no truck")
					}
					return ship(ctx, tx, j)
				},
			})
		}
	}))
	last := event(s, "inventory", "o-1", Reserved{2})
	s.Send(event(s, "payment", "o-1", Paid{999}))
	s.Settle()
	s.Send(last)
	letter := s.AwaitDeadLetter(last)
	require.Equal(t, participant.Transient, letter.Class)
	require.Equal(t, 3, letter.Attempts)
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.joins WHERE status = 'open' AND cardinality(arrived) = 1"))
	s.Settle()
	broken.Store(false)
	s.Settle()
	last.Extra = append(last.Extra, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("1")})
	s.Send(last)
	testkit.Wait(t, "the shipment", func() (bool, error) { return count(t, s, "SELECT count(*) FROM shipments") == 1, nil })
	require.Equal(t, bothShipped, said(s)[1], "behind the exhausted event")
}

// TestTenThatComeAtOnceAreJoinedOnce has ten topics and two members, and sends every message twice, in batches and one by
// one.
func TestTenThatComeAtOnceAreJoinedOnce(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d a transaction", batch), func(t *testing.T) {
			t.Parallel()
			const keys = 100
			ten := newTen(t, batch)
			ten.send(keys, 2)
			ten.start()
			testkit.Wait(t, "joins", func() (bool, error) { return ten.done() == keys, nil })
			ten.settle()
			require.Equal(t, keys, ten.count("SELECT count(*) FROM shipments"))
			require.Equal(t, keys, ten.count("SELECT count(DISTINCT order_id) FROM shipments"))
			require.Equal(t, keys, ten.count("SELECT count(*) FROM troupe.outbox WHERE type = 'Shipped'"))
			require.Zero(t, ten.count("SELECT count(*) FROM troupe.join_parts"))
			require.Zero(t, ten.count("SELECT count(*) FROM troupe.deadlines"))
		})
	}
}

// BenchmarkJoinOfTen joins ten messages of ten topics that arrive at once, and reports how many of the transactions had to be
// repeated.
func BenchmarkJoinOfTen(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			ten := newTen(b, batch)
			ten.send(b.N, 1)
			b.ResetTimer()
			ten.start()
			for ten.done() < b.N {
				time.Sleep(time.Millisecond) //nolint:forbidigo // a benchmark, which must not measure how it waits
			}
			b.StopTimer()
			ten.settle()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "joins/s")
			b.ReportMetric(100*float64(ten.repeated.Load())/float64(ten.transactions.Load()), "%repeated")
		})
	}
}

// shuffled returns a random permutation of n numbers.
func shuffled(n int) []int { return rand.Perm(n) }

// TestANarrowerJoinEndsWithARepeatedMessage has a join whose former declaration awaited a third message: both messages of the
// present declaration have come, and one of them comes once more.
func TestANarrowerJoinEndsWithARepeatedMessage(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t))
	s.Send(event(s, "inventory", "o-1", Reserved{2}))
	s.Settle()
	paid := s.Hop.Flow() + ".payment.events Paid"
	_, err := s.Pool.Exec(t.Context(), "UPDATE troupe.joins SET arrived = arrived || $1::text WHERE key = 'o-1'", paid)
	require.NoError(t, err)
	var headers []byte
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT headers FROM troupe.join_parts").Scan(&headers))
	hs, err := envelope.UnmarshalHeaders(headers)
	require.NoError(t, err)
	for i := range hs {
		if string(hs[i].Value) == "Reserved" {
			hs[i].Value = []byte("Paid")
		}
	}
	_, err = s.Pool.Exec(t.Context(), `INSERT INTO troupe.join_parts (consumer_group, name, key, part, headers, payload)
SELECT consumer_group, name, key, $1, $2, $3 FROM troupe.join_parts`, paid, envelope.MarshalHeaders(hs), []byte(`{"Cents":999}`))
	require.NoError(t, err)
	s.Send(event(s, "payment", "o-1", Paid{1}))
	s.Settle()
	s.Advance(2 * time.Hour)
	s.Settle()
	var status string
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT status FROM troupe.joins").Scan(&status))
	require.NotEmpty(t, said(s), "the join is %s, and neither Complete nor Expired was called", status)
}

// TestAJoinThatIsNarrowedToOneMessageLeavesNoPart has a join of two messages whose declaration is narrowed to the one that has come, and
// later awaits both again. The key comes again after the join's retention.
func TestAJoinThatIsNarrowedToOneMessageLeavesNoPart(t *testing.T) {
	t.Parallel()
	var narrow atomic.Bool
	s := testkit.NewStage(t, shippingStage(t, func(cfg *testkit.StageConfig) {
		cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
			declared, complete := shipping(s.Hop.Flow()), ship
			if narrow.Load() {
				declared.Joins[0].Await = declared.Joins[0].Await[:1]
				complete = func(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
					paid, err := flow.Read[Paid](j)
					return participant.Succeed(Shipped{Cents: paid.Cents}), err
				}
			}
			flow.OnJoin(bind(t, p, declared), "ready", flow.Ends{Complete: complete, Expired: tooLate})
		}
	}))
	s.Send(event(s, "payment", "o-1", Paid{999}))
	s.Settle()
	narrow.Store(true)
	s.Advance(0) // restarts the participant
	s.Send(event(s, "payment", "o-1", Paid{1}))
	s.Settle()
	require.Equal(t, []string{`success o-1 Shipped {"Cents":999,"Titles":0}`}, said(s), "the first of its type")
	require.Empty(t, s.Deadlines())
	_, err := s.Pool.Exec(t.Context(), "DELETE FROM troupe.joins") // its retention is over
	require.NoError(t, err)
	narrow.Store(false)
	s.Advance(0)
	s.Send(event(s, "payment", "o-1", Paid{2}), event(s, "inventory", "o-1", Reserved{2}))
	s.Settle()
	require.Equal(t, `success o-1 Shipped {"Cents":2,"Titles":2}`, said(s)[1])
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.join_parts"))
}

// TestAJoinWhoseDatabaseWasSetBackSaysTheSameAgain gives a join its messages again in the other order, as after a failover to a
// standby that lagged. The services that consume its event recognise the repetition by its id.
func TestAJoinWhoseDatabaseWasSetBackSaysTheSameAgain(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t))
	messages := []envelope.Message{event(s, "payment", "o-1", Paid{999}), event(s, "inventory", "o-1", Reserved{2}), event(s, "payment", "o-2", Paid{1})}
	ids := func(sends ...envelope.Message) (all []string) {
		for _, m := range sends {
			s.Send(m)
			s.Settle()
		}
		s.Advance(time.Hour)
		s.Settle()
		for _, m := range s.Entries(s.Hop.Events()) {
			all = append(all, m.ID)
		}
		_, err := s.Pool.Exec(t.Context(), `DELETE FROM troupe.joins; DELETE FROM troupe.join_parts; DELETE FROM troupe.deadlines;
			DELETE FROM troupe.outbox; DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent`)
		require.NoError(t, err)
		return all
	}
	before := ids(messages...)
	require.Len(t, before, 2)
	require.NotEqual(t, before[0], before[1])
	require.Equal(t, before, ids(messages[1], messages[0], messages[2]))
}

// onceAway is a codec that cannot decode the first message, as one does whose registry or store of keys is away.
type onceAway struct {
	envelope.JSONCodec
	tries *atomic.Int32
}

func (c onceAway) Decode(m envelope.Message, into any) error {
	if c.tries.Add(1) == 1 {
		return errors.New("connection refused")
	}
	return c.JSONCodec.Decode(m, into)
}

// TestAJoinReadsAgainWhatItsCodecCouldNotDecode: the last message is no dead letter because the registry was away for a moment.
func TestAJoinReadsAgainWhatItsCodecCouldNotDecode(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t, func(c *testkit.StageConfig) { c.Participant.Codec = onceAway{tries: new(atomic.Int32)} }))
	s.Send(event(s, "payment", "o-1", Paid{999}), event(s, "inventory", "o-1", Reserved{2}))
	testkit.Wait(t, "the join", func() (bool, error) { return len(said(s)) > 0, nil }) // its event is held meanwhile
	require.Equal(t, []string{bothShipped}, said(s))
}
