// Package docs holds the documents to the code.
package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga/verify"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

// squeezed drops indentation, so that code may stand at another depth.
func squeezed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func TestTheGoInDocumentsIsCodeThatRunsAsATest(t *testing.T) {
	for document, tests := range map[string][]string{
		"README.md":            {"participant/example_test.go", "outbox/example_test.go"},
		"docs/testing.md":      {"testkit/participanttest/example/payment_test.go"},
		"docs/ambassador.md":   {"ambassador/example_test.go"},
		"docs/choreography.md": {"flow/example_test.go"},

		"docs/operating-sagas.md": {"internal/demo/order/orchestrate.go"},
		"docs/sagas.md": {
			"examples/order-on-postgres/definition_test.go", "examples/order-on-postgres/services.go", "examples/order-on-postgres/orders.go",
		},
		"examples/letter-of-credit/README.md": {"examples/letter-of-credit/reminder_test.go"},
	} {
		var code string
		for _, path := range tests {
			code += squeezed(read(t, path)) + "\n"
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, document), -1)
		require.NotEmpty(t, blocks, document)
		for _, b := range blocks {
			require.Contains(t, code, squeezed(b[1]), "a block of %s stands in no test", document)
		}
	}
}

// A block of JSON is a definition without a finding, or stands in one of the example.
func TestTheDefinitionsInDocumentsAreProved(t *testing.T) {
	parts := squeezed(read(t, "examples/order-on-postgres/order.saga.json"))
	definitions := 0
	for _, b := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(read(t, "docs/sagas.md"), -1) {
		var is struct{ Saga string }
		require.NoError(t, json.Unmarshal([]byte(b[1]), &is), b[1])
		if is.Saga == "" {
			require.Contains(t, parts, squeezed(b[1]))
			continue
		}
		definitions++
		d, found := verify.JSON([]byte(b[1]), verify.Options{})
		require.NotNil(t, d, b[1])
		require.Empty(t, found)
	}
	require.Positive(t, definitions)
}

func TestLinksBetweenDocumentsResolve(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	examples, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	require.NoError(t, err)
	runbooks, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	documents = append(documents, examples...)
	documents = append(documents, runbooks...)
	for _, path := range append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		// Without its code, in which the call of a generic function looks like a link.
		prose := regexp.MustCompile("(?s)```.*?```|`[^`]*`").ReplaceAllString(string(text), "")
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(prose, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(path), link[1]))
			require.NoError(t, err, "%s links to %s", filepath.Base(path), link[1])
		}
	}
}

func TestTheReadmeShowsTheTwoCommands(t *testing.T) {
	readme := read(t, "README.md")
	require.Contains(t, readme, "\n    go run ./cmd/troupe demo\n")
	require.Contains(t, readme, "\n    go test ./...\n")
}

func TestEveryPromiseNamesTestsThatAreThere(t *testing.T) {
	defined := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			defined[m[1]] = true
		}
		return err
	}))
	rows := 0
	for line := range strings.Lines(read(t, "docs/promises.md")) {
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(line, -1)
		if len(names) > 0 {
			rows++
		}
		for _, n := range names {
			require.True(t, defined[n[1]], "%s is named and not there: %s", n[1], line)
		}
	}
	require.Greater(t, rows, 30)
}

func TestEveryPromiseOfSagasHasARow(t *testing.T) {
	page := read(t, "docs/promises.md")
	want := []string{"AQ1-AQ7", "D16-D20"}
	for prefix, last := range map[string]int{"A": 29, "B": 17, "D": 15} {
		for i := range last {
			want = append(want, fmt.Sprintf("%s%02d", prefix, i+1))
		}
	}
	for i := range 23 {
		want = append(want, strconv.Itoa(i+1))
	}
	for _, id := range want {
		require.Equal(t, 1, strings.Count(page, "\n| "+id+" | "), id)
	}
}
