// Package docs tests the documents against the code.
package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/graph"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/internal/scaffold"
	"github.com/troupe-go/troupe/topics"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

// squeezed removes indentation, so that code may have another depth.
func squeezed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func TestTheGoInDocumentsIsCodeThatRunsAsATest(t *testing.T) {
	for document, tests := range map[string][]string{
		"README.md":           {"participant/example_test.go", "outbox/example_test.go"},
		"docs/participant.md": {"participant/example_test.go"},
		"docs/testing.md": {
			"testkit/example/payment_test.go", "init tickets_test.go", "testkit/containers/containers_test.go",
			"testkit/inflow_test.go",
		},
		"docs/start.md":         {"init seats.go", "init tickets.go"},
		"docs/choreography.md":  {"flow/example_test.go"},
		"docs/observability.md": {"logbridge/example_test.go", "telemetry/example_prometheus_test.go"},
		"docs/database-sql.md": {
			"outbox/example_sql_test.go", "examples/services/sqlcsql/payment.go", "examples/services/gormstore/payment.go",
			"examples/services/bunstore/payment.go", "examples/services/entstore/payment.go",
		},

		"docs/personal-data.md":   {"schemas/personal/example_test.go"},
		"docs/operating-sagas.md": {"internal/demo/order/orchestrate.go"},
		"docs/sagas.md": {
			"examples/order-on-postgres/definition_test.go", "examples/order-on-postgres/services.go", "examples/order-on-postgres/orders.go",
			"saga/coordinator/example_wait_test.go", "examples/library/saga.go", "examples/library/service.go",
		},
		"examples/library/README.md": {
			"examples/library/handler.go", "examples/library/service.go", "examples/library/saga.go", "examples/library/containers_test.go",
		},
		"examples/letter-of-credit/README.md": {"examples/letter-of-credit/reminder_test.go"},
		"examples/travel-booking/README.md":   {"examples/travel-booking/trip_test.go"},
	} {
		var code string
		for _, path := range tests {
			if made, is := strings.CutPrefix(path, "init "); is {
				code += squeezed(initialized(t)[made]) + "\n"
				continue
			}
			code += squeezed(read(t, path)) + "\n"
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, document), -1)
		require.NotEmpty(t, blocks, document)
		for _, b := range blocks {
			require.Contains(t, code, squeezed(b[1]), "a block of %s is in no test", document)
		}
	}
}

// initialized returns the handlers and tests that troupe init writes for the services of docs/start.md.
func initialized(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	seats := scaffold.Service{Name: "seats", Module: "seats", Hop: topics.MustHop("booking", "seats"), Troupe: root}
	tickets := scaffold.Service{Name: "tickets", Module: "tickets", Hop: topics.MustHop("booking", "tickets"), From: seats.Hop, Troupe: root}
	for _, s := range []scaffold.Service{seats, tickets} {
		made, err := s.Files()
		require.NoError(t, err)
		for _, f := range made {
			if rest, is := strings.CutPrefix(f.Path, "handler"); is {
				files[s.Name+rest] = string(f.Text)
			}
		}
	}
	return files
}

// A block of JSON is a definition without a finding, or a part of an example's.
func TestTheDefinitionsInDocumentsAreProved(t *testing.T) {
	parts := squeezed(read(t, "examples/order-on-postgres/order.saga.json")) + squeezed(read(t, "examples/travel-booking/trip.saga.json")) +
		squeezed(read(t, "examples/travel-booking/group.saga.json"))
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

// A block of the page that compares notations is a part of one of their files, and the page has the number of lines of each.
func TestTheComparisonShowsPartsOfItsFiles(t *testing.T) {
	page := read(t, "docs/side-by-side.md")
	files := map[string]string{"json": "", "go": ""}
	for path, of := range map[string]string{
		"examples/travel-booking/trip.saga.json": "json", "examples/travel-booking/elsewhere/trip.asl.json": "json",
		"examples/travel-booking/elsewhere/temporal.go.txt": "go",
	} {
		text := read(t, path)
		files[of] += squeezed(text) + "\n"
		require.Regexp(t, fmt.Sprintf(`\| lines \|.*\b%d of`, strings.Count(text, "\n")), page, path)
	}
	blocks := regexp.MustCompile("(?s)```(json|go)\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Greater(t, len(blocks), 8)
	for _, b := range blocks {
		part := squeezed(b[2])
		if b[1] == "json" {
			require.True(t, json.Valid([]byte(b[2])), b[2])
			if !strings.Contains(files["json"], part) { // fields of an object, in braces of the page
				part = squeezed(strings.TrimSuffix(strings.TrimPrefix(part, "{"), "}"))
			}
		}
		require.Contains(t, files[b[1]], part)
	}
}

// The picture of the demo's choreography is generated from its services' declarations.
func TestThePictureOfTheFlowIsDrawnFromIt(t *testing.T) {
	var services []flow.Declaration
	for _, name := range []string{"inventory", "order", "payment", "shipping"} {
		s, err := flow.Load(filepath.Join(root, "internal/demo", name, "reactions.json"))
		require.NoError(t, err)
		services = append(services, s)
	}
	require.Equal(t, graph.SVG(services), read(t, "docs/choreography.svg"),
		"stale: go run ./cmd/troupe flow graph --output svg internal/demo/*/reactions.json > docs/choreography.svg")
}

// documents returns all pages, by their paths from the root.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range found {
			relative, err := filepath.Rel(root, path)
			require.NoError(t, err)
			paths = append(paths, filepath.ToSlash(relative))
		}
	}
	return paths
}

var (
	block   = regexp.MustCompile("(?ms)^```.*?^```")
	inCode  = regexp.MustCompile("`[^`]*`")
	linked  = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	shown   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`) // the text of a link
	unlike  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links returns the links of a page within this repository: the file from the root, and the anchor in it, "" for none.
func links(page, text string) (all [][2]string) {
	// Code is removed first: the call of a generic function looks like a link.
	prose := inCode.ReplaceAllString(block.ReplaceAllString(text, ""), "")
	for _, l := range linked.FindAllStringSubmatch(prose, -1) {
		if strings.Contains(l[1], "://") || strings.HasPrefix(l[1], "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(l[1], "#")
		if file == "" {
			file = path.Base(page)
		}
		all = append(all, [2]string{path.Join(path.Dir(page), file), anchor})
	}
	return all
}

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		words := shown.ReplaceAllString(strings.ReplaceAll(h[1], "`", ""), "$1")
		anchor := strings.ReplaceAll(unlike.ReplaceAllString(strings.ToLower(words), ""), " ", "-")
		for n, first := 1, anchor; all[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", first, n)
		}
		all[anchor] = true
	}
	return all
}

func TestLinksOfDocumentsResolve(t *testing.T) {
	for _, page := range documents(t) {
		for _, to := range links(page, read(t, page)) {
			_, err := os.Stat(filepath.Join(root, to[0]))
			require.NoError(t, err, "%s links to %s", page, to[0])
			if to[1] != "" && path.Ext(to[0]) == ".md" {
				require.Contains(t, anchors(read(t, to[0])), to[1], "%s links to %s", page, to[0])
			}
		}
	}
}

// Every page is reachable from the map by links alone.
func TestEveryDocumentIsReachedFromTheMap(t *testing.T) {
	const theMap = "docs/README.md"
	require.Contains(t, links("README.md", read(t, "README.md")), [2]string{theMap, ""})
	reached, next := map[string]bool{theMap: true}, []string{theMap}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		for _, to := range links(page, read(t, page)) {
			if path.Ext(to[0]) == ".md" && !reached[to[0]] {
				reached[to[0]] = true
				next = append(next, to[0])
			}
		}
	}
	direct := links(theMap, read(t, theMap))
	for _, page := range documents(t) {
		require.True(t, reached[page] || page == "CHANGELOG.md", "no way leads from the map to %s", page)
		if path.Dir(page) == "docs" && page != theMap {
			require.Contains(t, direct, [2]string{page, ""}, "the map leaves out %s", page)
		}
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	require.Equal(t, map[string]bool{"a-b": true, "a-b-1": true, "is-it-so--yes": true, "troupe-dlq-list": true, "tables-a_b": true},
		anchors("# A b\n## A b\n```\n# no\n```\n### Is it so? — yes!\n## `troupe dlq list`\n# [Tables](x.md) a_b\n"))
}

func TestTheReadmeShowsTheTwoCommands(t *testing.T) {
	readme := read(t, "README.md")
	require.Contains(t, readme, "\n    go run ./cmd/troupe demo\n")
	require.Contains(t, readme, "\n    go test ./...\n")
}

// The version of the migrations in the printed output of outbox-relay check and troupe doctor is the latest.
func TestDocumentsShowTheLatestMigration(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "migrations/sql/*.sql"))
	require.NoError(t, err)
	number, _, _ := strings.Cut(filepath.Base(files[len(files)-1]), "_")
	latest := strings.TrimLeft(number, "0")
	shown := 0
	for _, page := range documents(t) {
		for _, version := range regexp.MustCompile(`version (\d+), which is this program's`).FindAllStringSubmatch(read(t, page), -1) {
			require.Equal(t, latest, version[1], page)
			shown++
		}
	}
	require.NotZero(t, shown)
}

// A decision must state its costs and the rejected alternatives, or it is an advertisement.
func TestDecisionsSayWhatTheyCost(t *testing.T) {
	pages := 0
	for _, page := range documents(t) {
		if path.Dir(page) != "docs/decisions" || path.Base(page) == "README.md" {
			continue
		}
		pages++
		for _, part := range []string{"**Context.**", "**Decision.**", "**What it costs.**", "**Rejected.**", "*Tested by* "} {
			require.Equal(t, 1, strings.Count(read(t, page), "\n"+part), "%s: %s", page, part)
		}
		require.Contains(t, links("docs/decisions/README.md", read(t, "docs/decisions/README.md")), [2]string{page, ""})
	}
	require.Greater(t, pages, 10)
}

func TestEveryPromiseNamesTestsThatAreThere(t *testing.T) {
	defined := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			defined[m[1]] = true
		}
		return err
	}))
	rows := 0
	text := read(t, "docs/promises.md")
	ids := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z0-9-]*) \|`).FindAllStringSubmatch(text, -1) {
		require.False(t, ids[m[1]], "docs/promises.md: two promises are named %s", m[1])
		ids[m[1]] = true
	}
	for _, page := range documents(t) {
		if page != "docs/promises.md" {
			text += read(t, page)
		}
	}
	for line := range strings.Lines(text) {
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(line, -1)
		if len(names) > 0 {
			rows++
		}
		for _, n := range names {
			require.True(t, defined[n[1]], "%s is named and not there: %s", n[1], line)
		}
	}
	require.Greater(t, rows, 30)
}

// A door of the threat model has the prevented actions, and the tests that hold it.
func TestEveryDoorOfTheThreatModelHasItsTests(t *testing.T) {
	_, table, found := strings.Cut(read(t, "docs/security.md"), "| door and user |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")[2:]
	require.Greater(t, len(rows), 14)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, 4, row)
		require.Regexp(t, "`(Test|Fuzz)\\w+`", cells[3], row)
	}
}

// TestEveryFuzzerRunsForMinutes checks that .ci/soak runs each fuzz target, within a limit of memory.
func TestEveryFuzzerRunsForMinutes(t *testing.T) {
	soak := read(t, ".ci/soak")
	require.Contains(t, soak, "ulimit -v")
	require.Contains(t, soak, "GOMEMLIMIT=")
	targets := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`).FindAllSubmatch(text, -1) {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			require.NoError(t, err)
			require.Contains(t, soak, "./"+filepath.ToSlash(folder)+":"+string(m[1])+":", "%s is not in .ci/soak", path)
			targets++
		}
		return err
	}))
	require.Greater(t, targets, 15)
}

func TestEveryPromiseOfSagasHasARow(t *testing.T) {
	page := read(t, "docs/promises.md")
	want := []string{"D16-D20"}
	for i := range 7 {
		want = append(want, fmt.Sprintf("AQ%d", i+1))
	}
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
