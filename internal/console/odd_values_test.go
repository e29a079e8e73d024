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
