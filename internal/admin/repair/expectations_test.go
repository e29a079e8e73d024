package repair_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestExpectationsAreListedAndCountedByStatus reads as a viewer, in pages of two.
func TestExpectationsAreListedAndCountedByStatus(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, missed_at, raised_at, met_at, alert_at, alerted_at, forget_at)
		SELECT g, n, k, now() - interval '1 hour', now() + due * interval '1 minute', gen_random_uuid(), missed, raised, met, alert, alerted,
		       CASE WHEN met IS NOT NULL OR raised IS NOT NULL THEN now() END
		FROM (VALUES
			('shop.order', 'paid', 'w-1', 5, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz),
			('shop.order', 'shipped', 'w-2', 6, NULL, NULL, NULL, NULL, NULL),
			('shop.order', 'shipped', 'm-1', -6, now(), NULL, NULL, now(), NULL),
			('shop.order', 'shipped', 'm-2', -5, now(), now(), NULL, NULL, now()),
			('shop.order', 'shipped', 'm-3', -4, NULL, now(), NULL, NULL, NULL),
			('shop.order', 'shipped', 'l-1', -3, now(), now(), now(), NULL, now()),
			('shop.other', 'shipped', 'l-2', -2, now(), NULL, now(), NULL, NULL),
			('shop.order', 'shipped', 'met', 9, NULL, NULL, now(), NULL, NULL)) AS v (g, n, k, due, missed, raised, met, alert, alerted);
		INSERT INTO troupe.expectations (consumer_group, name, key, met_at, forget_at) VALUES ('shop.order', 'shipped', 'early', now(), now())`)
	require.NoError(t, err)
	desk, err := repair.New(repair.Config{Pool: grantstest.New(t, pool, grants.Viewer).Pool()})
	require.NoError(t, err)
	list := func(f repair.ExpectationFilter) (keys []string) {
		for p := (repair.Page{Limit: 2}); ; {
			all, next, err := desk.Expectations(t.Context(), f, p)
			require.NoError(t, err)
			for _, e := range all {
				keys = append(keys, e.Status+" "+e.Key)
			}
			if p.After = next; next == "" {
				return keys
			}
		}
	}
	require.Equal(t, []string{"missing m-1", "missing m-2", "missing m-3", "late l-1", "late l-2", "waiting w-1", "waiting w-2"}, list(repair.ExpectationFilter{}))
	require.Equal(t, []string{"missing m-1", "missing m-2", "missing m-3"}, list(repair.ExpectationFilter{Status: repair.Missing}))
	require.Equal(t, []string{"waiting w-1", "waiting w-2"}, list(repair.ExpectationFilter{Status: repair.Waiting}))
	require.Equal(t, []string{"late l-2"}, list(repair.ExpectationFilter{Status: repair.Late, Group: "shop.other"}))
	require.Equal(t, []string{"waiting w-1"}, list(repair.ExpectationFilter{Name: "paid"}))
	require.Equal(t, []string{"missing m-3"}, list(repair.ExpectationFilter{Key: "m-3"}))

	counts, err := desk.CountExpectations(t.Context(), repair.ExpectationFilter{})
	require.NoError(t, err)
	var lines []string
	for _, c := range counts {
		lines = append(lines, fmt.Sprint(c.Group, " ", c.Name, " ", c.Waiting, c.Missing, c.Late, " ", c.Oldest != nil))
	}
	require.Equal(t, []string{"shop.order shipped 1 3 1 true", "shop.order paid 1 0 0 true", "shop.other shipped 0 0 1 false"}, lines)

	_, _, err = desk.Expectations(t.Context(), repair.ExpectationFilter{Status: "lost"}, repair.Page{})
	require.ErrorContains(t, err, `status "lost"`)
	_, _, err = desk.Expectations(t.Context(), repair.ExpectationFilter{}, repair.Page{After: "x"})
	require.ErrorContains(t, err, "after")
}

// TestAnExpectationWithoutItsTimesHidesNoOther: no program writes such a row, but the role of a service may.
func TestAnExpectationWithoutItsTimesHidesNoOther(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := grantstest.New(t, pool, grants.Flow).Pool().Exec(t.Context(), `
		INSERT INTO troupe.expectations (consumer_group, name, key, missed_at, forget_at) VALUES ('g', 'n', 'odd', now(), now());
		INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, missed_at)
		VALUES ('g', 'n', 'o-1', now(), now(), gen_random_uuid(), now())`)
	require.NoError(t, err)
	desk, err := repair.New(repair.Config{Pool: pool})
	require.NoError(t, err)
	all, _, err := desk.Expectations(t.Context(), repair.ExpectationFilter{}, repair.Page{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "o-1", all[0].Key)
}
