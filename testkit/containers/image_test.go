package containers

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheArchiveHasTheFilesOfTheImage needs no Docker.
func TestTheArchiveHasTheFilesOfTheImage(t *testing.T) {
	t.Parallel()
	archive, err := buildContext("../..")
	require.NoError(t, err)
	files := make(map[string]bool)
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		files[h.Name] = true
	}
	for _, name := range []string{"Dockerfile", "go.mod", "go.sum", "cmd/outbox-relay/main.go", "internal/console/templates/sagas.html"} {
		require.True(t, files[name], name)
	}
	for _, name := range []string{"README.md", "testkit/containers/image.go", "testkit/containers/go.mod", "bench/go.mod", ".ci/run"} {
		require.False(t, files[name], name)
	}
}
