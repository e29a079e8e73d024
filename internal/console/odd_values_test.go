package console

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/retention"
)

// TestOddValuesOfAServiceHideNoPage writes odd values into every column that the role of a service or of a relay may write. Each page without
// payloads opens, and no part of it is missing. The owner's statements work, too. TROUPE_SEED selects other statements.
func TestOddValuesOfAServiceHideNoPage(t *testing.T) {
	t.Parallel()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("TROUPE_SEED"), "1"), 10, 64)
	require.NoError(t, err)
	for _, part := range []grants.Part{
		grants.Participant, grants.LocalWork, grants.Sagas, grants.Flow, grants.Ambassador, grants.Relay, grants.MappedRelay,
	} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.letters()
			d.Loan("l-1")
			d.Expect("paid", "o-1")
			d.Schedules()
			d.Rebuilds()
			d.FailedRow("shop.none.commands", "parked", "no such topic")
			t.Log(grantstest.NewOdd(grantstest.New(t, d.Pool, part), seed).Write(60))
			by := admin.Actor{Name: "ann", Reason: "ticket 7"}
			_, err := erasure.Desk{Pool: d.Pool}.Erase(t.Context(), "c-1", by)
			require.NoError(t, err)
			_, err = retention.NewRecords(d.Pool).Remove(t.Context())
			require.NoError(t, err)
			for _, page := range []string{
				"/", "/?window=7d", "/sagas", "/sagas?order=oldest", "/questions", "/dead-letters", "/dead-letters/list?db=order", "/held",
				"/expectations", "/schedules", "/rebuilds", "/messages?q=o-1", "/relay", "/relay/rows?db=order", "/actions", "/definitions",
			} {
				for _, accept := range []string{"text/html", "application/json"} {
					w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, page, nil)
					r.Header.Set("Accept", accept)
					d.c.ServeHTTP(w, r)
					require.Equal(t, http.StatusOK, w.Code, "%s %s: %s", page, accept, w.Body)
					require.NotContains(t, w.Body.String(), "cannot be read", page)
				}
			}
		})
	}
}

// TestRecordsOfAnOperatorFillNoMemory: operators' roles write the records of operators' actions, which no program deletes before their time, and the
// console lists all of them.
func TestRecordsOfAnOperatorFillNoMemory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const long = "repeat('x', 20000000)"
	for part, inserts := range map[grants.Part][]string{
		grants.RelayOperator: {
			"troupe.relay_pauses (actor, action, reason, shard) VALUES ('eve', 'pause', " + long + ", 0)",
			"troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, attempts, last_error) VALUES ('eve', 'retry', " + long + ", 1, gen_random_uuid(), 't', 1, 'e')",
		},
		grants.SagaOperator: {
			"troupe.schedule_changes (actor, action, reason, name, change) VALUES (" + long + ", 'run', 'r', 'n', 'c')",
		},
		grants.Operator: {
			"troupe.repairs (actor, action, reason, consumer_group, topic, partition, \"offset\", message_id) VALUES ('eve', 'retry', 'r', 'g', " + long + ", 0, 0, 'm')",
			"troupe.rebuild_changes (actor, action, reason, rebuild, change) VALUES ('eve', 'start', 'r', 1, " + long + ")",
			"troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ('g', 1, ARRAY[" + long + "], 'epoch', false)",
			"troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ('g', 1, array_fill(''::text, ARRAY[1000000]), 'epoch', false)",
		},
	} {
		role := grantstest.New(t, d.Pool, part).Pool()
		for _, insert := range inserts {
			_, err := role.Exec(t.Context(), "INSERT INTO "+insert)
			require.ErrorContains(t, err, "check constraint", insert)
		}
	}
	// A row of the outbox may have a topic of some megabytes, and its discard keeps it.
	role := grantstest.New(t, d.Pool, grants.RelayOperator).Pool()
	_, err := role.Exec(t.Context(), `INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, attempts, last_error)
		SELECT 'ann', 'discard', 'ticket ' || n, n, gen_random_uuid(), repeat('t', 8000000), 1, 'e' FROM generate_series(1, 5) AS n`)
	require.NoError(t, err)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/actions", nil)
	r.Header.Set("Accept", "application/json")
	d.c.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "ticket 5")
	require.Less(t, w.Body.Len(), 100_000)
}
