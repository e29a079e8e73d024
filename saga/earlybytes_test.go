package saga_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestEventsThatComeBeforeTheirStepHaveALimitOfBytes: each decision of the saga reads all of them.
func TestEventsThatComeBeforeTheirStepHaveALimitOfBytes(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"loan","version":1,"key":"id","data":{"id":"string"},"steps":[
	 {"name":"check","command":{"hop":"desk","type":"Check"},"success":[{"event":"Checked"}],"timeout":"1h","irreversible":"reads"},
	 {"name":"approval","needs":["check"],"success":[{"event":"Approved","hop":"desk"}],"timeout":"1h"}]}`))
	require.NoError(t, err)
	fields, err := saga.ReadFields([]byte(`{"x":[` + strings.Repeat("0,", 500_000) + `0]}`))
	require.NoError(t, err)
	s, _ := history(t, d, begun)
	var fx saga.Effects
	for i := 0; fx.Refused == "" && i < 64; i++ {
		s, fx = saga.Decide(d, s, saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Approved", Message: fmt.Sprint(i), Fields: fields}, time.Unix(2000, 0))
	}
	require.Contains(t, fx.Refused, "came before a step awaits it")
	require.Less(t, len(s.Early), 4)
	require.NotEmpty(t, s.Early, "one is kept whatever its size is")
}
