package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestActionsArePinned checks that each action of a workflow is named by its commit, with its version as a comment: the owner of an action
// can move a tag to other code.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	pinned := regexp.MustCompile(`^- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	checked := 0
	for _, file := range files {
		text := read(t, filepath.Join(".github/workflows", filepath.Base(file)))
		for line := range strings.Lines(text) {
			if strings.Contains(line, "uses:") {
				require.Regexp(t, pinned, strings.TrimSpace(line), "%s: want owner/name@COMMIT # vVERSION", filepath.Base(file))
				checked++
			}
		}
	}
	require.Greater(t, checked, 10)
}

// TestDependenciesAreCheckedBeforeTheyLand checks that the workflow of known vulnerabilities and licences runs on pull requests.
func TestDependenciesAreCheckedBeforeTheyLand(t *testing.T) {
	text := read(t, ".github/workflows/dependencies.yml")
	require.Regexp(t, `(?m)^  pull_request:`, text)
	require.Contains(t, text, "govulncheck@")
	require.Contains(t, text, "go-licenses@")
}

// TestNoJobThatMayWriteRunsProgramsOfARegistry: a program that a script installs, with all that it depends on, could use the job's token. Go
// modules are excepted, since Go compares them with their checksums.
func TestNoJobThatMayWriteRunsProgramsOfARegistry(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	installs := regexp.MustCompile(`\.ci/|\b(pip|npm|npx|curl|wget|apt-get)\b`)
	checked := 0
	for _, file := range files {
		head, jobs, is := strings.Cut(read(t, filepath.Join(".github/workflows", filepath.Base(file))), "\njobs:\n")
		require.True(t, is, file)
		require.NotContains(t, head, ": write", "%s: rights are of one job", file)
		require.NotContains(t, head+jobs, "write-all", file)
		for _, job := range regexp.MustCompile(`(?m)^  [\w-]+:$`).Split(jobs, -1) {
			if strings.Contains(job, "contents: write") {
				require.Empty(t, installs.FindString(job), filepath.Base(file))
				checked++
			}
		}
	}
	require.Equal(t, 2, checked, "the release and the site")
}
