package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEachFolderWithDependenciesIsUpdated compares the folders that have a list of dependencies with .github/dependabot.yml.
func TestEachFolderWithDependenciesIsUpdated(t *testing.T) {
	folders := make(map[string]string) // of each ecosystem, as its part of the file
	for part := range strings.SplitSeq(read(t, ".github/dependabot.yml"), "- package-ecosystem: ") {
		name, rest, _ := strings.Cut(part, "\n")
		folders[name] = rest
	}
	checked := 0
	require.NoError(t, filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (file != root && strings.HasPrefix(name, ".") || slices.Contains([]string{"node_modules", "testdata", "dist", "bin"}, name)):
			return filepath.SkipDir
		}
		ecosystem := map[string]string{"go.mod": "gomod", "requirements.txt": "pip", "package.json": "npm", "docker-compose.yml": "docker-compose"}[entry.Name()]
		if strings.HasSuffix(file, "Dockerfile") {
			ecosystem = "docker"
		}
		if ecosystem == "" {
			return nil
		}
		relative, err := filepath.Rel(root, filepath.Dir(file))
		folder := path.Join("/", filepath.ToSlash(relative))
		require.Regexp(t, `(directory: |")`+regexp.QuoteMeta(folder)+`("|\n)`, folders[ecosystem], "%s: .github/dependabot.yml, %s", file, ecosystem)
		checked++
		return err
	}))
	require.Greater(t, checked, 10)
}
