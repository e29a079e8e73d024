package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image is built from the files that .dockerignore lets through: an embedded file that is left out breaks the build there,
// and only there.
func TestEmbeddedFilesAreInTheImage(t *testing.T) {
	text, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)
	let := make(map[string]bool) // through, by the end of the name
	for _, line := range strings.Fields(string(text)) {
		if kind, ok := strings.CutPrefix(line, "!**/*"); ok {
			let[kind] = true
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{$p := .}}{{if .Module}}{{if .Module.Main}}{{range .EmbedFiles}}{{$p.ImportPath}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "../../cmd/...")
	files, err := list.Output()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range strings.Fields(string(files)) {
		require.True(t, let[filepath.Ext(file)], "%s is embedded, and .dockerignore keeps it out: add !**/*%s", file, filepath.Ext(file))
	}
}
