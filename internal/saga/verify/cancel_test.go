package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
)

// aCancel reserves stock and ships, by a hop that refuses nothing: only a cancel sends the saga back.
const aCancel = `{"saga":"order","version":1,"key":"id","data":{"id":"string","ref":"string"},
"steps":[
{"name":"stock","command":{"hop":"stock","type":"Reserve"},"success":[{"event":"Reserved","set":{"ref":"event.ref"}}],"retriable":true,"timeout":"1h"COMPENSATION},
{"name":"pick","needs":["stock"],"success":[{"event":"Picked","hop":"depot"}],"deadline":0},
{"name":"ship","needs":["pick"],"command":{"hop":"depot","type":"Ship"},"success":[{"event":"Shipped"}],"retriable":true,"timeout":"1h","pivot":true}],
"cancel":{"events":[{"event":"CancelRequested","hop":"shop"CONDITION}],"refused":[{"event":"TooLate","input":{"ref":"data.ref"}}]},
"deadlines":[{"name":"look","after":"24h","since":"pick","until":["pick"],"then":"park"}]}`

func cancelFindings(t testing.TB, o verify.Options, replaced ...string) (all []string) {
	t.Helper()
	text := strings.NewReplacer(append(replaced, `,"deadline":0`, "", "COMPENSATION", "", "CONDITION", "")...).Replace(aCancel)
	d, found := verify.JSON([]byte(text), o)
	require.NotNil(t, d, "%v", found)
	for _, f := range found {
		all = append(all, f.String())
	}
	return all
}

const undone = `,"compensation":{"command":{"hop":"stock","type":"Free"},"success":[{"event":"Freed"}]}`

func TestAnEffectThatACancelLeavesIsFound(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"error: no-way-back: steps[0]: stock stays done when a cancel comes; give it a compensation, or say in irreversible " +
		"why it needs none\n\tstock: done\n\tthe saga: cancelled"}, cancelFindings(t, verify.Options{}))
	require.Empty(t, cancelFindings(t, verify.Options{}, "COMPENSATION", undone))
	require.Empty(t, cancelFindings(t, verify.Options{}, "COMPENSATION", `,"irreversible":"it is freed at night"`))
	require.Empty(t, cancelFindings(t, verify.Options{}, `"cancel":{`, `"cancel":{"before":"pick",`, "COMPENSATION", undone))
}

func TestACancelThatReadsAVariableThatMayNotBeSetIsFound(t *testing.T) {
	t.Parallel()
	found := cancelFindings(t, verify.Options{}, "COMPENSATION", undone, "CONDITION", `,"when":"data.ref != event.ref"`)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "unset-variable: cancel.events[0].when: data.ref may not be set: stock sets it")
	found = cancelFindings(t, verify.Options{}, "COMPENSATION", undone, `"cancel":{`, `"cancel":{"before":"stock",`)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "cancel-never: cancel: stock begins as soon as the saga starts")
	require.Contains(t, found[1], "unset-variable: cancel.refused[0].input.ref: data.ref may not be set")
}

func TestACancelByAnEventThatNoHopEmitsIsFound(t *testing.T) {
	t.Parallel()
	hops := map[string]verify.Hop{
		"stock": {Consumes: []string{"Reserve", "Free"}, Emits: []string{"Reserved", "Freed"}},
		"depot": {Consumes: []string{"Ship"}, Emits: []string{"Picked", "Shipped"}}, "shop": {Emits: []string{"Cancelled"}},
	}
	require.Equal(t, []string{"error: no-producer: cancel.events[0].event: shop emits no CancelRequested; it emits Cancelled"},
		cancelFindings(t, verify.Options{Hops: hops}, "COMPENSATION", undone))
}

func TestARefusalThatLooksLikeTheEndIsFound(t *testing.T) {
	t.Parallel()
	found := cancelFindings(t, verify.Options{}, "COMPENSATION", undone, `"deadlines":`, `"compensated":[{"event":"TooLate"}],"deadlines":`)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "ends-alike: cancel.refused[0]: TooLate says that a cancel is refused and that the saga is compensated")
}
