package payment

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type bank struct {
	t    *testing.T
	pool *pgxpool.Pool
	service
}

func newBank(t *testing.T) bank {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	return bank{t: t, pool: pool}
}

// charge runs the handler and commits, as the participant does.
func (b bank) charge(id string, cents int64) (out participant.Outcome) {
	b.t.Helper()
	require.NoError(b.t, b.tryCharge(id, id+"/payment/forward", cents, &out))
	return out
}

func (b bank) tryCharge(id, key string, cents int64, out *participant.Outcome) error {
	return pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		*out, err = b.service.charge(b.t.Context(), tx, participant.Command[messages.ChargePayment]{
			Body:    messages.ChargePayment{OrderID: id, CustomerID: "c-1", AmountCents: cents},
			Message: envelope.Message{IdempotencyKey: key},
		})
		return err
	})
}

func (b bank) refund(id string, cents int64) (out participant.Outcome) {
	b.t.Helper()
	require.NoError(b.t, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		out, err = b.service.refund(b.t.Context(), tx, participant.Command[messages.RefundPayment]{
			Body:    messages.RefundPayment{OrderID: id, PaymentID: "pay-" + id, AmountCents: cents},
			Message: envelope.Message{IdempotencyKey: id + "/payment/compensate"},
		})
		return err
	}))
	return out
}

func (b bank) balance() (cents int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT balance_cents FROM accounts WHERE customer_id = 'c-1'").Scan(&cents))
	return cents
}

func (b bank) entries() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM ledger").Scan(&n))
	return n
}

func paid(id string, cents int64) participant.Outcome {
	return participant.Succeed(messages.PaymentCharged{OrderID: id, PaymentID: "pay-" + id, AmountCents: cents})
}

func refusedFor(id, reason string) participant.Outcome {
	return participant.Refuse(messages.PaymentRefused{OrderID: id, Reason: reason})
}

func TestAChargeIsOwed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.Equal(t, paid("o-1", 2933), b.charge("o-1", 2933))
	require.Equal(t, paid("o-2", 67), b.charge("o-2", 67))
	require.Equal(t, int64(3000), b.balance())
}

func TestAboveTheCreditLimitIsRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	_, err := b.pool.Exec(t.Context(), "INSERT INTO accounts (customer_id, limit_cents) VALUES ('c-1', 3000)")
	require.NoError(t, err)
	require.Equal(t, paid("o-1", 2000), b.charge("o-1", 2000))
	require.Equal(t, refusedFor("o-2", "credit limit"), b.charge("o-2", 1001))
	require.Equal(t, paid("o-3", 1000), b.charge("o-3", 1000), "up to the limit is within it")
	require.Equal(t, refusedFor("o-4", "credit limit"), b.charge("o-4", 1))
	require.Equal(t, refusedFor("o-5", "credit limit"), b.charge("o-5", 1<<63-1), "no sum overflows")
	require.Equal(t, paid("o-6", 0), b.charge("o-6", 0), "a free order is within any limit")
	require.Equal(t, int64(3000), b.balance())
	require.Equal(t, 3, b.entries())

	b.refund("o-1", 2000)
	require.Equal(t, paid("o-7", 2000), b.charge("o-7", 2000), "a refunded amount can be charged again")
}

func TestAFreeOrderIsChargedNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.Equal(t, paid("o-1", 0), b.charge("o-1", 0))
	require.Zero(t, b.balance())
	require.Equal(t, 1, b.entries())
	require.Equal(t, participant.Succeed(messages.PaymentRefunded{OrderID: "o-1", PaymentID: "pay-o-1"}), b.refund("o-1", 0))
	require.Zero(t, b.balance())
}

func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first := b.charge("o-1", 2933)
	require.Equal(t, first, b.charge("o-1", 2933))
	require.Equal(t, int64(2933), b.balance())
	refund := b.refund("o-1", 2933)
	require.Equal(t, participant.Succeed(messages.PaymentRefunded{OrderID: "o-1", PaymentID: "pay-o-1", AmountCents: 2933}), refund)
	require.Equal(t, refund, b.refund("o-1", 2933))
	require.Zero(t, b.balance())
	require.Equal(t, first, b.charge("o-1", 2933), "the charge is answered as before")
	require.Zero(t, b.balance(), "and is not made again")
	require.Equal(t, 2, b.entries())
}

// A compensation that comes before its forward call does nothing, and neither does the forward call after
// it.
func TestARefundBeforeItsChargeKeepsTheChargeFromBeingMade(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.Equal(t, participant.Succeed(messages.PaymentRefunded{OrderID: "o-1", PaymentID: "pay-o-1"}), b.refund("o-1", 2933))
	require.Equal(t, refusedFor("o-1", "the order was cancelled"), b.charge("o-1", 2933))
	require.Zero(t, b.balance())
	require.Equal(t, 1, b.entries())
}

func TestAnIdempotencyKeyIsOfOneCharge(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.charge("o-1", 100)
	var out participant.Outcome
	var pgErr *pgconn.PgError
	require.ErrorAs(t, b.tryCharge("o-2", "o-1/payment/forward", 100, &out), &pgErr, "another order under the same key")
	require.Equal(t, "23505", pgErr.Code)
	require.ErrorAs(t, b.tryCharge("o-3", "", 100, &out), &pgErr, "no key at all")
	require.Equal(t, "23514", pgErr.Code)
	require.Equal(t, paid("o-1", 100), b.charge("o-1", 100))
	require.Equal(t, int64(100), b.balance())
}

func TestAChargeAndItsRefundAreMadeOnceWhereverTheyAreInterrupted(t *testing.T) {
	t.Parallel()
	cfg := testkit.StageConfig{
		Hop: hop, SQL: schema,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { service{}.register(p) },
	}
	books := testkit.Query(`
		SELECT order_id, kind, customer_id, payment_id, amount_cents, (SELECT sum(balance_cents) FROM accounts) FROM ledger`)
	chargeOf := func(s *testkit.Stage) envelope.Message {
		return s.Command("o-1", messages.ChargePayment{OrderID: "o-1", CustomerID: "c-1", AmountCents: 2933})
	}
	t.Run("charge", func(t *testing.T) {
		t.Parallel()
		testkit.CrashAtEveryStep(t, cfg, chargeOf, books)
	})
	t.Run("refund", func(t *testing.T) {
		t.Parallel()
		testkit.CrashAtEveryStep(t, cfg, func(s *testkit.Stage) envelope.Message {
			c := chargeOf(s)
			s.Send(c)
			paid := testkit.Await[messages.PaymentCharged](s, c).Body
			return s.Command("o-1", messages.RefundPayment{OrderID: "o-1", PaymentID: paid.PaymentID, AmountCents: 2933})
		}, books)
	})
}

func TestFailRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.cfg = demo.Config{Fail: demo.Fail{"payment": 1}}
	require.Equal(t, refusedFor("o-1", "declined by the bank"), b.charge("o-1", 2933))
	require.Zero(t, b.entries())
}

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	conn, err := newBank(t).pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{openSQL, lockSQL, chargeSQL, refundSQL, selectRefundSQL} {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), sql, nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, sql)
	}
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err, "the schema can be applied again")
}
