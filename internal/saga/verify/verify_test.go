package verify_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

func read(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	return text
}

// files returns the files of an example; the last one breaks the rule.
func files(rule, kind string) []string {
	first := rule + "." + kind + ".saga.json"
	second := rule + "." + kind + ".2.saga.json"
	if _, err := os.Stat(filepath.Join("testdata", second)); err == nil {
		return []string{first, second}
	}
	return []string{first}
}

// find verifies the files of an example together, and returns the findings of the last one.
func find(t testing.TB, files []string, hops string) []verify.Finding {
	t.Helper()
	var o verify.Options
	if text, err := os.ReadFile(filepath.Join("testdata", hops)); err == nil {
		require.NoError(t, json.Unmarshal(text, &o.Hops))
	}
	if text, err := os.ReadFile(filepath.Join("testdata", strings.Replace(hops, ".hops.", ".personal.", 1))); err == nil {
		require.NoError(t, json.Unmarshal(text, &o.Personal))
	}
	if text, err := os.ReadFile(filepath.Join("testdata", strings.Replace(hops, ".hops.", ".types.", 1))); err == nil {
		require.NoError(t, json.Unmarshal(text, &o.Types))
	}
	var ds []*saga.Definition
	var last []verify.Finding
	var text []byte
	for _, file := range files {
		text = read(t, file)
		d, found := verify.JSON(text, o)
		ds, last = append(ds, d), found
	}
	together := verify.Together(ds)
	found := together[len(together)-1]
	verify.Lines(text, found)
	return append(last, found...)
}

func TestEachRuleHasAGoodAndABadExample(t *testing.T) {
	for _, r := range verify.Rules() {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			bad := find(t, files(r.ID, "bad"), r.ID+".hops.json")
			require.NotEmpty(t, bad, "nothing is found")
			for _, f := range bad {
				require.Equal(t, r.ID, f.Rule, "%s", f)
				require.Equal(t, r.Severity, f.Severity, "%s", f)
				require.Positive(t, f.Line)
			}
			require.Empty(t, find(t, files(r.ID, "good"), r.ID+".hops.json"))
		})
	}
}

func TestEveryExampleBelongsToARule(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	require.NoError(t, err)
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		known := slices.ContainsFunc(verify.Rules(), func(r rule.Rule) bool { return r.ID == name })
		require.True(t, known || strings.HasPrefix(name, "published-"), e.Name())
	}
}

// TestThePublishedPatternsFail verifies the pseudocode of the published patterns, unchanged. The
// rules show which of its defects would have been found before it ran.
func TestThePublishedPatternsFail(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]map[string][]string{
		"published-a": {
			"no-way-back":        {"steps[1]", "steps[2]", "steps[4]"},                         // 3: the stock stays reserved
			"no-producer":        {"steps[3].success[0].event", "steps[3].success[1].event"},   // 2: states that are never set
			"no-timeout":         {"steps[0]", "steps[1]", "steps[2]", "steps[3]", "steps[4]"}, // 8: refund_intent has no way out
			"no-failure-answer":  {"steps[4].failure"},                                         // 8: nor a way on
			"compensation-unset": {"steps[0].compensation.command.input.payment_id"},
		},
		"published-b": {
			"saga-timeout-below-steps": {"timeout"},
			"key-clash":                {"steps[0].compensation"},                                    // 9, 15
			"timeout-below-retries":    {"steps[0].timeout", "steps[1].timeout", "steps[2].timeout"}, // 16
			"compensation-unset":       {"steps[0].compensation.call.body.reservation_id"},           // 11: in doubt
			"no-way-back":              {"steps[1]", "steps[2]"},
			"ends-alike":               {"completed[0]"}, // 14
		},
		"published-d": {
			"guard-boundary": {"ends[1].when"},                         // 23
			"deadline-field": {"deadlines[0].emit[0].input.letter_id"}, // 21
			"no-way-back":    {"steps[1]"},
		},
	} {
		got := make(map[string][]string)
		for _, f := range find(t, []string{file + ".saga.json"}, file+".hops.json") {
			got[f.Rule] = append(got[f.Rule], f.Path)
		}
		for _, paths := range got {
			slices.Sort(paths)
		}
		require.Equal(t, want, got, file)
	}
}

func TestThirtySecondsAreLessThanTheLegalRetries(t *testing.T) {
	t.Parallel()
	found := find(t, files("timeout-below-retries", "bad"), "")
	require.Contains(t, found[0].Text, "may take 31.5s")
}

func TestTheBoundaryItselfBelongsSomewhere(t *testing.T) {
	t.Parallel()
	found := find(t, files("guard-boundary", "bad"), "")
	require.Equal(t, []string{"data.amount_usd = 10000", "approve: not taken", "the end: not taken"}, found[0].Trace)
}
