package coordinator_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

func parsed(t testing.TB, text string) *saga.Definition {
	t.Helper()
	d, err := saga.Parse([]byte(text))
	require.NoError(t, err)
	return d
}

const quote = `{"saga":"quote","version":1,"key":"id","data":{"id":"string"},
 "steps":[{"name":"quote","command":{"hop":"pricing","type":"Quote"},"success":[{"event":"Quoted"}],"failure":[{"event":"Refused"}],"timeout":"10m","irreversible":"reads"}]}`

// loyalty returns a saga that starts by the answer of quote.
func loyalty(start string) string {
	return `{"saga":"loyalty","version":1,"key":"id","data":{"id":"string","cents":"int"},"deadlines":[{"name":"remind","after":"1h",
  "payload":{"share":"100 / data.cents"},"emit":[{"event":"Remind"}]}],` + start + `,
 "steps":[{"name":"points","command":{"hop":"points","type":"Add"},"success":[{"event":"Added"}],"timeout":"1m","retriable":true,"irreversible":"gift"}]}`
}

// starts are sagas whose start cannot be evaluated for an event of a customer without cents.
var starts = map[string]string{
	"when":     loyalty(`"start":[{"hop":"pricing","event":"Quoted","when":"event.cents > 100","set":{"id":"event.customer"}}]`),
	"set":      loyalty(`"start":[{"hop":"pricing","event":"Quoted","set":{"id":"event.customer","cents":"event.cents"}}]`),
	"key":      loyalty(`"start":[{"hop":"pricing","event":"Quoted","set":{"id":"event.cents"}}]`),
	"lock":     loyalty(`"lock":"string(data.cents)","start":[{"hop":"pricing","event":"Quoted","set":{"id":"event.customer"}}]`),
	"deadline": loyalty(`"start":[{"hop":"pricing","event":"Quoted","set":{"id":"event.customer","cents":"0"}}]`),
}

func TestAStartThatFailsLeavesAnotherSagasAnswerAlone(t *testing.T) {
	t.Parallel()
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			m, err := decisions.NewMemory(noon, parsed(t, quote), parsed(t, start))
			require.NoError(t, err)
			id, err := m.Start("quote", map[string]any{"id": "q"})
			require.NoError(t, err)
			require.NoError(t, m.Take(decisions.Message{
				ID: "1", Hop: "pricing", Type: "Quoted", Key: "q", Outcome: "success", SagaID: id, SagaStep: "quote", SagaOperation: "forward",
				Fields: map[string]any{"customer": "c"},
			}))
			require.Len(t, m.Sagas(), 1)
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			require.Error(t, m.Take(decisions.Message{
				ID: "2", Hop: "pricing", Type: "Quoted", Key: "q", Fields: map[string]any{"customer": "c"},
			}), "where it is for nothing else, the message itself fails")
		})
	}
}

// TestAStartThatFailsIsADeadLetterOfItsOwn: the answer takes effect, and an operator sees which start failed.
func TestAStartThatFailsIsADeadLetterOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"when", "deadline"} {
		f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
		f.c = f.coordinator(parsed(t, quote), parsed(t, starts[name]))
		var is coordinator.StartResult
		require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) (err error) {
			is, err = f.c.Start(t.Context(), tx, "quote", map[string]any{"id": "q"})
			return err
		}))
		const answer = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, 'q', 'Quoted', '{"customer": "c"}', jsonb_build_object('ce_sagaid', $2::text, 'ce_sagastep', 'quote',
        'ce_sagaoperation', 'forward', 'ce_outcome', 'success', 'ce_idempotencykey', $2 || '/quote/forward/0'))`
		_, err := f.pool.Exec(t.Context(), answer, f.name+".pricing.events", is.ID)
		require.NoError(t, err)
		var letters []string
		testkit.Wait(t, "a dead letter", func() (bool, error) {
			rows, _ := f.pool.Query(t.Context(), "SELECT message_type || ' ' || error || ' ' || convert_from(payload, 'UTF8') FROM troupe.dead_letters")
			letters, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return len(letters) > 0, err
		})
		require.Len(t, letters, 1)
		require.Contains(t, letters[0], "troupe.RetryEvent")
		require.Contains(t, letters[0], "loyalty")
		require.Contains(t, letters[0], map[string]string{"when": "event.cents", "deadline": "remind"}[name])
		require.Contains(t, letters[0], "customer")
		var status string
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT status FROM troupe.sagas WHERE id = $1", is.ID).Scan(&status))
		require.Equal(t, "completed", status)
	}
}

// TestAnEventThatIsTooLargeToBeTriedAgainForOneSagaIsADeadLetter: the message of a deadline has 1,000,000 bytes at most.
func TestAnEventThatIsTooLargeToBeTriedAgainForOneSagaIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, quote), parsed(t, starts["when"]))
	var is coordinator.StartResult
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) (err error) {
		is, err = f.c.Start(t.Context(), tx, "quote", map[string]any{"id": "q"})
		return err
	}))
	const answer = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, 'q', 'Quoted', convert_to('{"customer": "' || repeat('c', 999950) || '"}', 'UTF8'), jsonb_build_object('ce_sagaid', $2::text,
        'ce_sagastep', 'quote', 'ce_sagaoperation', 'forward', 'ce_outcome', 'success', 'ce_idempotencykey', $2 || '/quote/forward/0'))`
	_, err := f.pool.Exec(t.Context(), answer, f.name+".pricing.events", is.ID)
	require.NoError(t, err)
	var typ, failure string
	testkit.Wait(t, "a dead letter", func() (bool, error) {
		err := f.pool.QueryRow(t.Context(), "SELECT message_type, error FROM troupe.dead_letters").Scan(&typ, &failure)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	require.Equal(t, "Quoted", typ)
	require.Contains(t, failure, "saga loyalty cannot take Quoted of pricing now")
	require.Contains(t, failure, "redrive the message when the saga can take it")
}

// TestAnEventThatASagaHasNoRoomForIsADeadLetter: its step awaits the event later, and 8 MiB are kept already.
func TestAnEventThatASagaHasNoRoomForIsADeadLetter(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"steps":[
  {"name":"a","command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"3h","irreversible":"reads"},
  {"name":"scanned","needs":["a"],"success":[{"event":"Scanned","hop":"depot"}],"timeout":"24h"}]}`)
	m, err := decisions.NewMemory(noon, d)
	require.NoError(t, err)
	_, err = m.Start("order", map[string]any{"id": "o-1"})
	require.NoError(t, err)
	note := strings.Repeat("x", 3<<20)
	scanned := func(id string) error {
		return m.Take(decisions.Message{ID: id, Hop: "depot", Type: "Scanned", Key: "o-1", Fields: map[string]any{"note": note}})
	}
	require.NoError(t, scanned("m-1"))
	require.NoError(t, scanned("m-2"))
	require.ErrorIs(t, scanned("m-3"), decisions.ErrRefused)
	require.NoError(t, m.Take(decisions.Message{ID: "a", Hop: "a", Type: "ADone", Key: "o-1", Outcome: "success", SagaID: "order/o-1", SagaStep: "a"}))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	require.Equal(t, "m-1", m.Sagas()[0].Steps[1].Message)
}

func TestAnEventFindsItsSagaByANumberInAnyForm(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"int", "double", "any"} {
		d := parsed(t, `{"saga":"o","version":1,"key":"id","data":{"id":"string","invoice":"`+variable+`"},"steps":[
 {"name":"paid","success":[{"event":"Paid","hop":"bank","by":{"variable":"invoice","field":"invoice"}}],"timeout":"24h"}]}`)
		for _, number := range []string{"1000000", "1000000.0", "1e6", "0.1e7"} {
			m, err := decisions.NewMemory(noon, d)
			require.NoError(t, err)
			_, err = m.Start("o", map[string]any{"id": "1", "invoice": 1000000})
			require.NoError(t, err)
			fields, err := saga.ReadFields([]byte(`{"invoice": ` + number + `}`))
			require.NoError(t, err)
			require.NoError(t, m.Take(decisions.Message{ID: "m", Hop: "bank", Type: "Paid", Key: "x", Fields: fields}))
			require.Equal(t, saga.Completed, m.Sagas()[0].Status, "%s for %s", number, variable)
		}
	}
}

// TestAnEventFindsItsSagaByANumberOfManyDigits, and no saga whose number differs in the last one.
func TestAnEventFindsItsSagaByANumberOfManyDigits(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"saga":"o","version":1,"key":"id","data":{"id":"string","invoice":"any"},
 "start":[{"event":"Opened","hop":"bank","set":{"id":"event.id","invoice":"event.invoice"}}],
 "steps":[{"name":"paid","success":[{"event":"Paid","hop":"bank","by":{"variable":"invoice","field":"invoice"}}],"timeout":"24h"}]}`)
	m, err := decisions.NewMemory(noon, d)
	require.NoError(t, err)
	take := func(id, typ, body string) {
		fields, err := saga.ReadFields([]byte(body))
		require.NoError(t, err)
		require.NoError(t, m.Take(decisions.Message{ID: id, Hop: "bank", Type: typ, Key: "x", Fields: fields}))
	}
	take("1", "Opened", `{"id": "a", "invoice": 12345678901234567890}`)
	take("2", "Opened", `{"id": "b", "invoice": 12345678901234567891}`)
	take("3", "Paid", `{"invoice": 12345678901234567892}`)
	take("4", "Paid", `{"invoice": 1.2345678901234567891e19}`)
	require.Equal(t, saga.Running, m.Sagas()[0].Status)
	require.Equal(t, saga.Completed, m.Sagas()[1].Status)
	take("5", "Paid", `{"invoice": "12345678901234567890"}`)
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestAStartKeepsTheFormOfItsNumbers: a double remains a double if its value is whole, also in a variable of any type.
func TestAStartKeepsTheFormOfItsNumbers(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"saga":"o","version":1,"key":"id","data":{"id":"string","price":"any","n":"any"},
 "start":[{"event":"Opened","hop":"bank","set":{"id":"event.id","price":"[event.price]","n":"event.n"}}],
 "steps":[{"name":"a","command":{"hop":"a","type":"A","input":{"third":"data.price[0] / 4.0"}},"success":[{"event":"Done"}],"failure":[{"event":"No"}],"timeout":"24h","irreversible":"r"}]}`)
	m, err := decisions.NewMemory(noon, d)
	require.NoError(t, err)
	require.NoError(t, m.Take(decisions.Message{ID: "1", Hop: "bank", Type: "Opened", Fields: map[string]any{"id": "a", "price": 10.0, "n": int64(10)}}))
	require.Equal(t, map[string]any{"id": "a", "price": []any{10.0}, "n": int64(10)}, m.Sagas()[0].Data)
	_, err = m.Start("o", map[string]any{"id": "b", "price": []any{10.0}, "n": uint64(12345678901234567890)})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": "b", "price": []any{10.0}, "n": json.Number("12345678901234567890")}, m.Sagas()[1].Data)
}
