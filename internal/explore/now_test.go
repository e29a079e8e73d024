package explore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

// The explorer decides everything at one time. A condition that reads the time is no counterexample, and its other side is left out.
func TestACaseThatDependsOnTheTimeIsReportedAsLeftOut(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"loan","version":1,"key":"id","data":{"id":"string","due":"string"},"steps":[
 {"name":"night","when":"now.getHours() >= 20","command":{"hop":"bank","type":"Wait"},"success":[{"event":"Waited"}],"timeout":"1h","irreversible":"nothing"},
 {"name":"check","command":{"hop":"bank","type":"Check","input":{"at":"now"}},"success":[{"event":"Checked","set":{"due":"string(now + duration('1h'))"}}],"timeout":"1h","irreversible":"it only reads"}]}`))
	require.NoError(t, err)
	r, err := explore.Explore(t.Context(), d, explore.Config{})
	require.NoError(t, err)
	require.Nil(t, r.Counterexample)
	require.Empty(t, r.Parks)
	require.Equal(t, []string{"night"}, r.Unseen.Steps)
	require.False(t, r.Complete)
}
