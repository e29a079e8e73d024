package saga_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// parse reads a definition, with strings of its text replaced.
func parse(t testing.TB, text string, replaced ...string) *saga.Definition {
	t.Helper()
	d, err := saga.Parse([]byte(strings.NewReplacer(replaced...).Replace(text)))
	require.NoError(t, err)
	return d
}

// TestABadDurationNamesItsPlace tells the line and the path of a duration that cannot be read.
func TestABadDurationNamesItsPlace(t *testing.T) {
	t.Parallel()
	const text = `{
 "saga": "order", "version": 1, "key": "id", "data": {"id": "string"},
 "timeout": "1h",
 "steps": [
  {"name": "pay", "command": {"hop": "pay", "type": "Pay"}, "success": [{"event": "Paid"}],
   "timeout": "10m"},
  {"name": "ship", "command": {"hop": "ship", "type": "Ship"}, "success": [{"event": "Shipped"}],
   "retry": {"attempts": 3, "initial": "1s", "cap": "10s",
    "try": "7s"},
   "timeout": "20m"}
 ],
 "deadlines": [{"name": "late", "then": "park",
  "after": "2h"}]
}`
	for good, bad := range map[string]struct {
		value, path string
		line        int
	}{
		`"1h"`:  {`"1d"`, "timeout", 3},
		`"10m"`: {`"-10m"`, "steps[0].timeout", 6},
		`"7s"`:  {`"soon"`, "steps[1].retry.try", 9},
		`"20m"`: {`""`, "steps[1].timeout", 10},
		`"2h"`:  {`"900000h"`, "deadlines[0].after", 13},
	} {
		_, err := saga.Parse([]byte(strings.Replace(text, good, bad.value, 1)))
		var mistakes saga.Mistakes
		require.ErrorAs(t, err, &mistakes)
		require.Equal(t, saga.Mistakes{{Path: bad.path, Line: bad.line, Text: "duration " + bad.value + ": want such as 500ms, 30s or 240h, at most 87840h"}}, mistakes)
	}
	_, err := saga.Parse([]byte(strings.Replace(text, `"10m"`, "600", 1)))
	require.EqualError(t, err, `line 6: steps.timeout: number, want a duration in quotes, such as "10m"`)
}
