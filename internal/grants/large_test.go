package grants_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestARowThatWouldFillTheMemoryOfAConsoleIsRefused: the console reads the rows of all services, and shows them on pages that read them again every
// two seconds. A row of 900 MB has 10 MB on disk.
func TestARowThatWouldFillTheMemoryOfAConsoleIsRefused(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := grantstest.New(t, pool, grants.Sagas).Pool()
	for table, of := range map[string]struct{ columns, values, large string }{
		"sagas": {
			"id, saga, key, hop, consumer_group, definition, version, status, steps, reason, state, content_type, started_at",
			"'order/o-1', 'order', 'o-1', 'shop.order', 'shop.order', 'd', 1, 'parked', 'pay', 'no answer', '{}', 'application/json', now()",
			"hop consumer_group definition steps reason content_type",
		},
		"saga_events": {
			"saga_id, version, at, kind, event, moments, actor, reason", "'order/o-1', 1, now(), 'retry', '{}', '[]', 'ann', 'ticket 7'", "kind actor reason",
		},
		"dead_letters": {
			`consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", headers, message_id, message_type, correlation_id, first_failed_at, last_failed_at`,
			"'g', 'h', 'poison', 'e', 1, 't', gen_random_uuid(), 0, 1, '', 'm', 'T', 'c', now(), now()",
			"handler error_class error topic message_type headers payload key",
		},
		"held": {
			`consumer_group, topic_id, partition, "offset", topic, hold_key, headers, message_time, max_attempts, next_try, error_class, last_error, handler, hop, source`,
			"'g', gen_random_uuid(), 0, 1, 't', '', '', now(), 8, now(), 'transient', 'e', 'h', 'shop.billing', 'shop'",
			"error_class last_error handler hop source headers payload key",
		},
		"leases": {"consumer_group, topic, partition, owner", "'g', 't', 0, 'member'", "owner"},
	} {
		_, err := role.Exec(t.Context(), "INSERT INTO troupe."+table+" ("+of.columns+") VALUES ("+of.values+")")
		require.NoError(t, err, table)
		for column := range strings.FieldsSeq(of.large) {
			huge := "repeat('x', 140000)"
			switch {
			case column == "headers" || column == "payload" || column == "key":
				huge = "convert_to(repeat('x', 110000000), 'UTF8')"
			case table == "saga_events" && column == "reason":
				huge = "repeat('x', 110000000)"
			}
			_, err := pool.Exec(t.Context(), "UPDATE troupe."+table+" SET "+column+" = "+huge)
			require.ErrorContains(t, err, table+"_"+map[bool]string{true: "owner_check", false: "size"}[table == "leases"], "%s.%s", table, column)
		}
	}
}
