package saga_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestShortNumbersThatBecomeLongAreRefused: a request of 980 KB with 140,000 times 1e1000 took 1.9 GB and eleven seconds, since
// the stored form of a number has no exponent. Records with such payloads, of some bytes each when compressed, stopped a
// coordinator.
func TestShortNumbersThatBecomeLongAreRefused(t *testing.T) {
	list := func(number string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(number+",", n), ",") + "]"
	}
	for _, number := range []string{"1e1000", "-1e-1000", "1e300", "1E+300", "1e-300", "-5E-324"} {
		text := []byte(fmt.Sprintf(`{"outer": {"n": %s}}`, list(number, 20_000)))
		_, err := saga.ReadFields(text)
		require.ErrorContains(t, err, "numbers", number)
		require.Less(t, len(err.Error()), 200)
		var e saga.Event
		require.NoError(t, json.Unmarshal([]byte(`{"kind": "started"}`), &e))
		_, err = saga.ReadEvent([]byte(fmt.Sprintf(`{"kind": "started", "fields": %s}`, text)))
		require.ErrorContains(t, err, "numbers", number)
	}
	for _, double := range []float64{1e300, 1e-300} {
		doubles := make([]any, 20_000)
		for i := range doubles {
			doubles[i] = double
		}
		require.ErrorContains(t, saga.Canonical(map[string]any{"n": doubles}), "numbers", "doubles of Avro")
	}
}

// TestNumbersWithinTheLimitAreReadAgain: a number that was stored without its exponent counts no second time.
func TestNumbersWithinTheLimitAreReadAgain(t *testing.T) {
	small := strconv.FormatFloat(1.5e-300, 'f', -1, 64) // as jsonb gives it
	_, err := saga.ReadFields([]byte(`{"a": [` + strings.TrimSuffix(strings.Repeat(small+",", 20_000), ",") + `]}`))
	require.NoError(t, err)
	numbers := strings.TrimSuffix(strings.Repeat("1e1000,1e300,0.1,17,0.000002,", 2_500), ",")
	text := []byte(`{"a": [` + numbers + `]}`)
	for range 2 {
		fields, err := saga.ReadFields(text)
		require.NoError(t, err)
		next, err := saga.WriteFields(fields)
		require.NoError(t, err)
		text = []byte(fmt.Sprintf(`{"a": %s, "b": %s}`, list(t, next), list(t, next)))
		require.Greater(t, len(text), 4<<20)
	}
}

// TestAnEventHasALimitOfValues: a compressed record of some kilobytes may have 64 MiB of "{},", which took 1.5 GB of a coordinator.
func TestAnEventHasALimitOfValues(t *testing.T) {
	_, err := saga.ReadFields([]byte(`{"a": [` + strings.Repeat("{},", 1<<20) + `{}]}`))
	require.ErrorContains(t, err, "more than 1048576 values")
}

// TestAnErrorDeepInAnEventIsShort: each of 10,000 levels copied the error of the level below, with a name of 100 kB. A payload of 150 kB, some
// hundred bytes when it is compressed, took a gigabyte.
func TestAnErrorDeepInAnEventIsShort(t *testing.T) {
	const levels = 9_000
	name := strings.Repeat("n", 100_000)
	text := []byte(strings.Repeat(`{"a":`, levels) + `{"` + name + `":1e99999}` + strings.Repeat("}", levels))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := saga.ReadFields(text)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "1e99999")
	require.Less(t, len(err.Error()), 300)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	_, err = saga.ReadFields([]byte(`{"order": {"lines": [{"cents": 1e99999}]}}`))
	require.ErrorContains(t, err, "order: lines: cents: the number 1e99999")
}

func list(t *testing.T, fields []byte) string {
	var read struct {
		A json.RawMessage `json:"a"`
	}
	require.NoError(t, json.Unmarshal(fields, &read))
	return string(read.A)
}

// TestNothingFollowsTheFields checks that no value is dropped without an error, as of two objects in one payload.
func TestNothingFollowsTheFields(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":1}{"a":2}`, `{"a":1} x`, `{"a":1}}`} {
		_, err := saga.ReadFields([]byte(text))
		require.ErrorContains(t, err, "nothing after it", text)
	}
	fields, err := saga.ReadFields([]byte("{\"a\":1}\r\n "))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": int64(1)}, fields)
}
