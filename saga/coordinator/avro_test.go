package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// An optional field of an Avro answer has its plain value, and a double remains a double if its value is whole; so does the
// log.
func TestAvroAnswersFitExpressionsAndReplay(t *testing.T) {
	t.Parallel()
	server := srfake.New()
	t.Cleanup(server.Close)
	ctx := t.Context()
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	for name, field := range map[string]string{
		"Charged": `{"name":"payment_id","type":["null","string"]}`, "Quoted": `{"name":"price","type":"double"}`, "Ask": `{"name":"id","type":"string"}`,
	} {
		_, err := registry.Register(ctx, name, `{"type":"record","name":"`+name+`","fields":[`+field+`]}`)
		require.NoError(t, err)
	}
	codec, err := schemas.New(ctx, schemas.Config{Registry: registry})
	require.NoError(t, err)
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	d, err := saga.Parse([]byte(`{"saga":"v","version":1,"key":"id","data":{"id":"string","payment_id":"string","third":"double"},
 "steps":[{"name":"a","command":{"hop":"a","type":"Ask","input":{"id":"data.id"}},
  "success":[{"event":"Charged","set":{"payment_id":"event.payment_id"}},{"event":"Quoted","set":{"third":"event.price * 1.5 / 4.0"}}],
  "failure":[{"event":"No"}],"timeout":"10m","irreversible":"r"}]}`))
	require.NoError(t, err)
	p := f.participant("order", f.pool)
	f.c, err = coordinator.New(ctx, coordinator.Config{Participant: p, Pool: f.pool, Definitions: []*saga.Definition{d}, Schemas: codec})
	require.NoError(t, err)
	t.Cleanup(f.goOn(p))
	for key, c := range map[string]struct {
		typ, body string
		data      map[string]any
	}{
		"1": {"Charged", `{"payment_id":"p-1"}`, map[string]any{"id": "1", "payment_id": "p-1"}},
		"2": {"Quoted", `{"price":10.5}`, map[string]any{"id": "2", "third": 3.9375}},
		"3": {"Quoted", `{"price":10}`, map[string]any{"id": "3", "third": 3.75}},
	} {
		id := f.begun("v", map[string]any{"id": key})
		payload, err := codec.FromJSON(ctx, c.typ, []byte(c.body))
		require.NoError(t, err)
		const answer = `INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, $2, $3, $4, jsonb_build_object('content-type', $6::text, 'ce_sagaid', $5::text, 'ce_sagastep', 'a', 'ce_sagaoperation', 'forward',
        'ce_outcome', 'success', 'ce_idempotencykey', $5 || '/a/forward/0'))`
		_, err = f.pool.Exec(ctx, answer, f.name+".a.events", key, c.typ, payload.Payload, id, envelope.Avro)
		require.NoError(t, err)
		f.ends(id)
		g, err := f.desk().Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, saga.Completed, g.State.Status, g.State.Reason)
		require.Equal(t, c.data, g.State.Data)
		r, err := f.desk().Replay(ctx, id)
		require.NoError(t, err)
		require.Empty(t, r.Difference)
	}
}

// begun starts a saga in a transaction of its own.
func (f *flow) begun(name string, fields map[string]any) string {
	tx, err := f.pool.Begin(f.t.Context())
	require.NoError(f.t, err)
	is, err := f.c.Start(f.t.Context(), tx, name, fields)
	require.NoError(f.t, err)
	require.NoError(f.t, tx.Commit(f.t.Context()))
	return is.ID
}

// ends waits until a saga neither runs nor compensates.
func (f *flow) ends(id string) {
	testkit.Wait(f.t, id+" ends", func() (bool, error) {
		var status string
		err := f.pool.QueryRow(f.t.Context(), "SELECT status FROM troupe.sagas WHERE id = $1", id).Scan(&status)
		return status != "running" && status != "compensating", err
	})
}
