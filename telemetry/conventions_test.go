package telemetry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	version  = regexp.MustCompile(`^v1\.(\d+)\.0$`)
	imported = regexp.MustCompile(`otel/semconv/(v1\.\d+\.0)[/"]`)
	named    = regexp.MustCompile(`\(v1\.\d+\.0, in development\)`)
)

// TestTheConventionsAreTheNewestOfTheModule checks that the code imports the newest version of semconv in the module, and that the pages name it.
func TestTheConventionsAreTheNewestOfTheModule(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "go.opentelemetry.io/otel").Output()
	require.NoError(t, err)
	all, err := os.ReadDir(filepath.Join(strings.TrimSpace(string(out)), "semconv"))
	require.NoError(t, err)
	var minors []int
	for _, d := range all {
		if m := version.FindStringSubmatch(d.Name()); m != nil {
			minor, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			minors = append(minors, minor)
		}
	}
	newest := "v1." + strconv.Itoa(slices.Max(minors)) + ".0"

	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var uses int
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range imported.FindAllStringSubmatch(string(text), -1) {
			require.Equal(t, newest, m[1], path)
			uses++
		}
	}
	require.Positive(t, uses)
	for _, path := range []string{"doc.go", "../docs/observability.md"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "("+newest+", in development)", named.FindString(string(text)), path)
	}
}
