package coordinator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// publish runs a hop's relay until its outbox is published, which must be one message.
func (f *flow) publish(hop string) {
	f.t.Helper()
	pool := f.pools[hop]
	count := func() (n int, err error) {
		return n, pool.QueryRow(f.t.Context(), "SELECT count(*) FROM troupe.outbox").Scan(&n)
	}
	testkit.Wait(f.t, "a message of "+hop, func() (bool, error) { n, err := count(); return n == 1, err })
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: pool, Brokers: testkit.Kafka(f.t), Service: hop, Log: testkit.Logger(f.t)})
	require.NoError(f.t, err)
	ctx, stop := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	testkit.Wait(f.t, "an empty outbox of "+hop, func() (bool, error) { n, err := count(); return n == 0, err })
	stop()
	require.NoError(f.t, <-done)
}

const (
	sagaRow = `
SELECT version, status, steps, coalesce(reason, '') AS reason,
       (SELECT string_agg(format('%s: %s', s ->> 'name', coalesce(s ->> 'phase', 'waiting')), ', ' ORDER BY n)
        FROM jsonb_array_elements(state -> 'steps') WITH ORDINALITY AS x (s, n)) AS phases
FROM troupe.sagas`
	sagaEvents = `
SELECT version, kind, what, coalesce(step, '') AS step
FROM troupe.saga_log
WHERE version = (SELECT version FROM troupe.sagas)
ORDER BY number`
	outboxRows = `
SELECT topic, key, type, headers ->> 'ce_idempotencykey' AS idempotency_key, convert_from(payload, 'UTF8') AS payload
FROM troupe.outbox
ORDER BY position`
)

// table returns a statement's result as text.
func (f *flow) table(name, sql string) string {
	t := f.t
	t.Helper()
	rows, err := f.pool.Query(t.Context(), sql)
	require.NoError(t, err)
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var heads []string
	for _, f := range rows.FieldDescriptions() {
		heads = append(heads, f.Name)
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\n", name, strings.Join(heads, "\t"))
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		values, err := row.Values()
		var cells []string
		for _, v := range values {
			cells = append(cells, strings.NewReplacer("<nil>", "", f.name, "order").Replace(fmt.Sprint(v)))
		}
		_, _ = fmt.Fprintf(w, "\t%s\n", strings.Join(cells, "\t"))
		return struct{}{}, err
	})
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	var trimmed strings.Builder
	for line := range strings.Lines(b.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return trimmed.String()
}

// newStepwise returns the hops of an order that shipping refuses, without relays and without a coordinator.
func newStepwise(t *testing.T, key string) *flow {
	f := &flow{
		t: t, name: testkit.Flow(t), pool: testkit.Database(t), pools: make(map[string]*pgxpool.Pool),
		refuse: map[string]string{key + " shipping/forward": "no carrier"}, fail: make(map[string]error),
	}
	for _, hop := range []string{"payment", "inventory", "shipping"} {
		f.pools[hop] = testkit.Database(t)
		_, err := f.pools[hop].Exec(t.Context(), effects)
		require.NoError(t, err)
		p := f.participant(hop, f.pools[hop])
		participant.Handle(p, does[ChargePayment](f, hop, PaymentCharged{"p-1"}, nil))
		participant.Handle(p, does[RefundPayment](f, hop, PaymentRefunded{}, nil))
		participant.Handle(p, does[ReserveStock](f, hop, StockReserved{"r-1"}, nil))
		participant.Handle(p, does[ReleaseStock](f, hop, StockReleased{}, nil))
		participant.Handle(p, does[ShipOrder](f, hop, OrderShipped{"s-1"}, func(r string) any { return ShippingRefused{r} }))
		f.goOn(p)
	}
	f.pools["order"] = f.pool
	return f
}

// TestTheRowsOfAShippingFailure takes an order through it step by step, each relay on command, and compares
// docs/operating-sagas.md with the rows. Run it with -v to print them.
func TestTheRowsOfAShippingFailure(t *testing.T) {
	t.Parallel()
	f := newStepwise(t, "o-1001")
	f.process(order(t))

	id := f.start("o-1001")
	var shown strings.Builder
	for version, moment := range []struct{ what, hop string }{
		{"The order is placed: the saga and its first command are one commit.", ""},
		{"Payment has answered: charged.", "payment"},
		{"Inventory has answered: reserved.", "inventory"},
		{"Shipping has refused: the saga turns round.", "shipping"},
		{"Inventory has answered: released.", "inventory"},
		{"Payment has answered: refunded. All that was done is undone.", "payment"},
	} {
		if moment.hop != "" {
			f.publish("order")
			f.publish(moment.hop)
		}
		testkit.Wait(t, fmt.Sprint("version ", version+1), func() (bool, error) { return f.state(id).Version == version+1, nil })
		_, _ = fmt.Fprintf(&shown, "%d. %s\n\n%s%s%s\n", version+1, moment.what, f.table("saga", sagaRow),
			f.table("log", sagaEvents), f.table("outbox", outboxRows))
	}
	require.Equal(t, saga.Compensated, f.state(id).Status)
	require.Equal(t, []string{"payment/forward", "payment/compensate", "inventory/forward", "inventory/compensate"}, f.effects("o-1001"))
	f.equalsItsLog(id)

	text := shown.String()
	t.Log("\n" + text)
	page, err := os.ReadFile("../../docs/operating-sagas.md")
	require.NoError(t, err)
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	require.Contains(t, squeeze(string(page)), squeeze(text), "docs/operating-sagas.md shows other rows")
	for _, statement := range []string{sagaRow, sagaEvents, outboxRows} {
		require.Contains(t, squeeze(string(page)), squeeze(statement))
	}
}
