package coordinator_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

const checkup = `{"saga":"visit","version":1,"key":"id","data":{"id":"string","customer":"string"},"steps":[
	{"name":"paid","success":[{"hop":"bank","event":"Paid","by":{"variable":"customer","field":"customer"}}]}]}`

// TestStashedEventsThatASagaLeavesAreForTheNextOne gives two events of one customer before the two sagas that await one each.
func TestStashedEventsThatASagaLeavesAreForTheNextOne(t *testing.T) {
	m, err := decisions.NewMemory(noon, parsed(t, checkup))
	require.NoError(t, err)
	for _, id := range []string{"m-1", "m-2"} {
		require.NoError(t, m.Take(decisions.Message{ID: id, Hop: "bank", Type: "Paid", Fields: map[string]any{"customer": "c-1"}}))
	}
	for _, key := range []string{"v-1", "v-2"} {
		_, err = m.Start("visit", map[string]any{"id": key, "customer": "c-1"})
		require.NoError(t, err)
	}
	var by []string
	for _, s := range m.Sagas() {
		require.Equal(t, saga.Completed, s.Status, s.ID())
		by = append(by, m.Log(s.ID())[1].Event.Message)
	}
	require.Equal(t, []string{"m-1", "m-2"}, by)
}

// TestAnEventWhoseKeyIsNoTextFindsItsSagaByAValue has a second saga that awaits the event by its key.
func TestAnEventWhoseKeyIsNoTextFindsItsSagaByAValue(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, checkup), parsed(t, `{"saga":"bill","version":1,"key":"id","data":{"id":"string"},"steps":[
		{"name":"paid","success":[{"hop":"bank","event":"Paid"}]}]}`))
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := f.c.Start(t.Context(), tx, "visit", map[string]any{"id": "v-1", "customer": "c-1"})
		return err
	}))
	_, err := f.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key_bytes, type, payload) VALUES ($1, '\x00ff', 'Paid', '{"customer": "c-1"}')`,
		f.name+".bank.events")
	require.NoError(t, err)
	f.waitCount("the saga to end", 1, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'")
	require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))

	m, err := decisions.NewMemory(noon, parsed(t, `{"saga":"bill","version":1,"key":"id","data":{"id":"string"},"steps":[
		{"name":"paid","success":[{"hop":"bank","event":"Paid"}]}]}`))
	require.NoError(t, err)
	require.ErrorContains(t, m.Take(decisions.Message{ID: "m-1", Hop: "bank", Type: "Paid", Key: "\xff"}), "not UTF-8")
}
