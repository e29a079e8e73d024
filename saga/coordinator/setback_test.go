package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// storefront sends the events of orders to Kafka from outside: they stay there when the coordinator's database is set back.
type storefront struct {
	*crew
	keys []string
}

// order sends the three events of each of n orders, in different orders.
func (s *storefront) order(n int) {
	s.t.Helper()
	var records []*kgo.Record
	event := func(hop, key, typ string, body any) *kgo.Record {
		payload, err := json.Marshal(body)
		require.NoError(s.t, err)
		return kafka.Record(envelope.Message{
			Topic: s.hop(hop).Events(), Key: []byte(key), ID: envelope.NewID(), Type: typ, Source: hop, Outcome: envelope.Success,
			ContentType: envelope.JSON, CorrelationID: "import 17", Payload: payload,
		})
	}
	sorts := []string{"fine", "refuse-payment", "refuse-inventory", "refuse-shipping"}
	for range n {
		i := len(s.keys)
		key := fmt.Sprintf("%d-%s", i, sorts[i%len(sorts)])
		s.keys = append(s.keys, key)
		three := []*kgo.Record{
			event("shop", key, "OrderPlaced", OrderPlaced{OrderID: key, Customer: fmt.Sprint("c-", i/3), Reference: "ref " + key}),
			event("desk", key, "OrderApproved", OrderApproved{}),
			event("desk", "r/"+key, "OrderCleared", OrderCleared{"ref " + key}),
		}
		records = append(records, append(three[i%3:], three[:i%3]...)...)
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

const endedSagas = "SELECT count(*) FROM troupe.sagas WHERE status IN ('completed', 'compensated')"

func (s *storefront) waitFor(what string, want int, sql string) {
	s.t.Helper()
	testkit.Wait(s.t, what, func() (bool, error) {
		if n := s.count("order", sql); n < want {
			return false, fmt.Errorf("%d of %d", n, want)
		}
		return true, nil
	})
}

// crash kills the coordinator's processes.
func (s *storefront) crash() {
	s.t.Helper()
	for _, m := range s.members {
		_ = m.Process.Kill()
		m.killed(s.t)
	}
	s.members = nil
}

// TestSagasOfADatabaseThatWasSetBackEnd sets a coordinator's database back to a copy, again and again, as after a failover to a
// standby that lagged. The databases of the other hops stay as they are.
func TestSagasOfADatabaseThatWasSetBackEnd(t *testing.T) {
	t.Parallel()
	s := &storefront{crew: newCrew(t, awaiting(t, time.Hour))}
	s.serve(hops[1:]...)
	s.spawn(1, "order")
	s.waitFor("all watermarks", 14, "SELECT count(*) FROM troupe.leases WHERE topic_id IS NOT NULL")
	server, name := testkit.Postgres(t), s.pools["order"].Config().ConnConfig.Database
	standby := name + "_standby"
	t.Cleanup(func() { require.NoError(t, server.DropDatabase(context.Background(), standby)) })

	for range 3 {
		s.order(6)
		s.waitFor("another saga to end", len(s.keys)-5, endedSagas)
		s.crash()
		require.NoError(t, server.DropDatabase(t.Context(), standby))
		s.pools["order"].Reset()
		testkit.Wait(t, "the copy", func() (bool, error) {
			_, err := server.CreateDatabase(t.Context(), standby, name)
			return err == nil, err
		})
		s.spawn(1, "order")
		s.order(6)
		s.waitFor("sagas of the lost time to end", len(s.keys)-5, endedSagas)
		s.crash()
		require.NoError(t, server.DropDatabase(t.Context(), name))
		_, err := server.CreateDatabase(t.Context(), name, standby)
		require.NoError(t, err)
		s.pools["order"].Reset()
		s.spawn(1, "order")
		s.order(3)
	}
	s.waitFor("all sagas to end", len(s.keys), endedSagas)
	s.quiesce()
	states, did := s.states(), s.did()
	for _, key := range s.keys {
		require.Contains(t, []saga.Status{saga.Completed, saga.Compensated}, states[key].Status, key)
		s.judgeEffects(states[key], did[key])
	}
	s.judgeLogs()
}
