package flow_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// TestOddValuesOfALesserRoleStopNothingElse writes odd values into every column that a writer or an operator may write. Another order completes
// then, the lists of the console open, and old records are removed. TROUPE_SEED selects other statements, and
// more of them: .ci/soak draws some.
func TestOddValuesOfALesserRoleStopNothingElse(t *testing.T) {
	f := startFlow(t, demo.Orchestration)
	f.exec(t, "shipping", "ALTER TABLE shipments ADD CHECK (order_id NOT LIKE 'o-stuck%')")
	for n := range 3 {
		f.post(t, fmt.Sprint("o-", n), nil)
		f.post(t, fmt.Sprint("o-stuck-", n), nil)
	}
	for n := range 3 {
		f.await(t, fmt.Sprint("o-", n), "completed")
		f.await(t, fmt.Sprint("o-stuck-", n), "parked")
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("TROUPE_SEED"), "1"), 10, 64)
	rows := 12 // of each table
	if os.Getenv("TROUPE_SEED") != "" {
		rows = 40
	}
	require.NoError(t, err)
	for n, part := range []grants.Part{grants.Writer, grants.Operator, grants.SagaOperator, grants.RelayOperator} {
		t.Run(string(part), func(t *testing.T) {
			for service, pool := range f.databases {
				t.Log(service, grantstest.NewOdd(grantstest.New(t, pool, part), seed).Write(rows))
				f.exec(t, service, "UPDATE troupe.relay_leases SET paused_at = NULL, paused_by = NULL, paused_why = NULL") // a relay operator may pause
			}
			id := "o-after-" + string(part)
			f.post(t, id, nil)
			f.await(t, id, "completed")
			var databases []console.Database
			pages := []string{
				"/", "/?window=7d", "/sagas", "/sagas?order=oldest", "/questions", "/dead-letters", "/held", "/expectations",
				"/schedules", "/rebuilds", "/messages?q=" + id, "/relay", "/actions", "/definitions",
			}
			for service, pool := range f.databases {
				_, err := retention.NewRecords(pool).Remove(t.Context())
				require.NoError(t, err, service)
				databases = append(databases, console.Database{Name: service, Pool: pool})
				pages = append(pages, "/dead-letters/list?db="+service, "/relay/rows?db="+service)
			}
			c, err := console.New(t.Context(), console.Config{Databases: databases, Brokers: testkit.Kafka(t), Flow: f.name})
			require.NoError(t, err)
			defer c.Close()
			forms := []string{"text/html", "application/json"}
			for m, page := range pages { // without a seed one part reads it as HTML, and the next one as JSON
				for k, accept := range forms {
					if os.Getenv("TROUPE_SEED") == "" && k != (n+m)%2 {
						continue
					}
					w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, page, nil)
					r.Header.Set("Accept", accept)
					c.ServeHTTP(w, r)
					require.Equal(t, http.StatusOK, w.Code, "%s %s: %s", page, accept, w.Body)
					require.NotContains(t, w.Body.String(), "cannot be read", page)
				}
			}
		})
	}
}
