package containers

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheRelayIsCompiledForTheImage needs no Docker. Distroless has no C library, so the program must be static.
func TestTheRelayIsCompiledForTheImage(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=vendor") // a service's own settings do not count
	archive, err := buildContext(t.Context(), runtime.GOARCH)
	require.NoError(t, err)
	files := make(map[string][]byte)
	modes := make(map[string]int64)
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		modes[h.Name] = h.Mode
		files[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int64{"Dockerfile": 0o644, "outbox-relay": 0o755}, modes)
	program, err := elf.NewFile(bytes.NewReader(files["outbox-relay"]))
	require.NoError(t, err)
	require.Nil(t, program.Section(".interp"), "the program is static")
}

// TestTheImageIsTheOneOfTheDockerfile compares the image of tests with the stages of Troupe's Dockerfile.
func TestTheImageIsTheOneOfTheDockerfile(t *testing.T) {
	t.Parallel()
	production, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	for _, part := range []string{
		"FROM gcr.io/distroless/static-debian12:nonroot", "\nENTRYPOINT [\"/app\"]\n", "/outbox-relay /app\n", "\nCMD [\"run\"]\n",
	} {
		require.Contains(t, string(production), part)
	}
	require.Equal(t, "FROM gcr.io/distroless/static-debian12:nonroot\nCOPY outbox-relay /app\nENTRYPOINT [\"/app\"]\nCMD [\"run\"]\n", relayImage)
}
