package docs

import (
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	output  = regexp.MustCompile(`\[output\]\(([^)#]+)#`)
	decimal = regexp.MustCompile(`\b[\d,]*\d\.\d+\b`)
	number  = regexp.MustCompile(`\b\d+(\.\d+)?\b`)
)

// TestTheFiguresOfADecisionAreOnThePageOfTheirOutput checks each figure with a decimal point in the costs of a decision that links the
// output of a benchmark: a number of the linked page, rounded, must be equal to it.
func TestTheFiguresOfADecisionAreOnThePageOfTheirOutput(t *testing.T) {
	checked := 0
	for _, page := range documents(t) {
		if path.Dir(page) != "docs/decisions" {
			continue
		}
		_, costs, _ := strings.Cut(read(t, page), "**What it costs.**")
		costs, _, _ = strings.Cut(costs, "**Rejected.**")
		outputs := output.FindAllStringSubmatch(costs, -1)
		if len(outputs) == 0 {
			continue
		}
		var printed []float64
		for _, o := range outputs {
			for _, n := range number.FindAllString(read(t, path.Join(path.Dir(page), o[1])), -1) {
				value, err := strconv.ParseFloat(n, 64)
				require.NoError(t, err)
				printed = append(printed, value)
			}
		}
		for _, figure := range decimal.FindAllString(inCode.ReplaceAllString(costs, ""), -1) {
			_, fraction, _ := strings.Cut(figure, ".")
			found := false
			for _, value := range printed {
				found = found || strconv.FormatFloat(value, 'f', len(fraction), 64) == strings.ReplaceAll(figure, ",", "")
			}
			require.True(t, found, "%s: %s is not in the output that the page links", page, figure)
			checked++
		}
	}
	require.Greater(t, checked, 10)
}

// finding is a call that adds a finding to a report, with the name of the finding, or a table of names and tables.
var finding = regexp.MustCompile(`(?:\.(?:Ok|Info|Warn|Fail)\("([a-z][a-z ]+)", |\{"([a-z][a-z ]+)", "troupe\.)`)

// TestEveryFindingOfTheDoctorIsOnItsPage compares the names of findings in the source with the table of docs/doctor.md.
func TestEveryFindingOfTheDoctorIsOnItsPage(t *testing.T) {
	page := read(t, "docs/doctor.md")
	names := 0
	for _, pattern := range []string{"internal/admin/doctor/*.go", "internal/sidecar/check*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			for _, m := range finding.FindAllStringSubmatch(read(t, name), -1) {
				require.True(t, strings.Contains(page, "`"+m[1]+m[2]+"`"), "%s: docs/doctor.md does not have the finding %s", name, m[1]+m[2])
				names++
			}
		}
	}
	require.Greater(t, names, 50)
}

// TestOutputsOfBenchmarksAreOnTheirPage checks that the output of a benchmark is on docs/benchmarks.md alone, below a command that prints
// it. The first line of such an output has the version of Go.
func TestOutputsOfBenchmarksAreOnTheirPage(t *testing.T) {
	const its = "docs/benchmarks.md"
	checked := 0
	for _, page := range documents(t) {
		for i, part := range strings.Split(read(t, page), "```") {
			if i%2 == 0 || !regexp.MustCompile(`^(text)?\ngo1\.\d`).MatchString(part) {
				continue
			}
			require.Equal(t, its, page, "the output of a benchmark: move it to %s, and link it", its)
			before := strings.Split(read(t, page), "```")[i-1]
			require.Regexp(t, `(?m)^    .*\bgo run -C bench `, before, "%s: no command is above the output that begins with%.200s", its, part)
			checked++
		}
	}
	require.Greater(t, checked, 10)
}
