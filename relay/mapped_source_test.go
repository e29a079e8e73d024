package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// TestEventsOfTwoMappedTablesThatCountTheirRowsAreNotOneMessage checks the identities by which participants recognise duplicates.
// The source of an event with a UUID, and one that the row names, stays as it is.
func TestEventsOfTwoMappedTablesThatCountTheirRowsAreNotOneMessage(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.eventTopic("order")
	options := map[string]string{
		"route.topic.replacement": s.flow + ".${routedByValue}.events", "table.fields.additional.placement": "origin:header:ce_source",
	}
	const id = "01a2108b-08b6-72a5-be6f-adaa0a3f53fd"
	for _, table := range []string{"orders", "bills"} {
		s.exec("CREATE TABLE public." + table + ` (id text, aggregatetype text, aggregateid text, type text, payload jsonb, origin text)`)
		s.exec("INSERT INTO public." + table + " VALUES ('1', 'order', 'number', 'T', '\"" + table + "\"', NULL), ('" + id +
			"', 'order', 'uuid', 'T', '\"" + table + "\"', NULL), ('2', 'order', 'named', 'T', '\"" + table + "\"', 'till')")
		s.start(s.mapped("public."+table, options))
	}
	consumer := testkit.Consume(t, s.brokers, topic)
	sources, identities, rows := make(map[string]map[string]bool), make(map[string]bool), make(map[string]bool)
	testkit.Wait(t, "the rows of both tables", func() (bool, error) {
		for _, record := range consumer.Records() {
			m, err := kafka.Message(record)
			require.NoError(t, err)
			key := string(record.Key)
			if sources[key] == nil {
				sources[key] = make(map[string]bool)
			}
			sources[key][m.Source], identities[key+" "+m.Identity()], rows[key+" "+string(record.Value)] = true, true, true
		}
		return len(rows) == 6, nil
	})
	require.Equal(t, map[string]map[string]bool{
		"number": {"shop/public.orders": true, "shop/public.bills": true}, "uuid": {"shop": true}, "named": {"till": true},
	}, sources)
	require.Len(t, identities, 4)
}
