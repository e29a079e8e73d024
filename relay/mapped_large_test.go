package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Postgres cannot store a row of 200 MB as jsonb. Such a row that cannot be published is parked without its long values, and other rows go
// on. It is parked again when it is retried: no other payload is published for it.
func TestAFailedRowThatIsTooLargeToKeepIsParked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	seen := publishFailures(&cfg)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	r.Keeps(1 << 20)
	s.waitTable(s.run(r))
	s.insertEvent("order", "k", `"`+strings.Repeat("x", 2<<20)+`"`)
	s.insertEvent("order", "k", "1")
	s.insertEvent("order", "free", "2")
	consumer := testkit.Consume(t, s.brokers, topic)
	require.Equal(t, []string{"2"}, values(consumer.WaitN(1)))
	first := <-seen
	require.True(t, first.Parked)
	require.Less(t, s.count("SELECT length(row::text) FROM troupe.mapped_failures WHERE status = 'parked'"), 10_000)

	d := desk.Desk{DB: s.pool, Table: desk.Table{Name: "public.outbox"}}
	by := admin.Actor{Name: "ann", Reason: "too large"}
	_, err = d.Retry(t.Context(), desk.RowID{ID: first.ID}, by)
	require.NoError(t, err)
	again := <-seen
	require.True(t, again.Parked)
	require.ErrorContains(t, again.Err, "column payload: has")
	require.ErrorContains(t, again.Err, "bytes, which are not kept")
	require.ErrorContains(t, again.Err, "discard this one, then insert the row again") // a row of its id that is inserted before is the same message
	_, err = d.Discard(t.Context(), desk.RowID{ID: first.ID}, by)
	require.NoError(t, err)
	require.Equal(t, []string{"2", "1"}, values(consumer.WaitN(2)))
	s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', 'k', 'T', '"shorter"')`, first.ID)
	require.Equal(t, []string{"2", "1", `"shorter"`}, values(consumer.WaitN(3)))
}
