package console

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated returns how many bytes do allocates. No other test may run meanwhile.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// A producer chooses the characters of a payload, and up to four requests hold one. An escape in JSON has six bytes. This test does not run in
// parallel with others, since it measures what the process allocates.
func TestAPayloadOfAnyCharactersTakesSomeTimesItsSize(t *testing.T) {
	payload := json.RawMessage(`{"text": "` + strings.Repeat("<", 8<<20) + `"}`)
	facts := map[string]any{"payload": payload}
	require.Less(t, allocated(func() { stateOf(facts) }), 5*len(payload))
	var a *rendered
	require.Less(t, allocated(func() { a = encode(http.StatusOK, facts) }), 6*len(payload))
	require.Less(t, a.text.Len(), len(payload)+1000)
	var got map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(a.text.Bytes(), &got))
	require.Equal(t, len(payload)-1, len(got["payload"]), "without the blank")
}
