package devstack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Not parallel: a program cannot be run while another test's fork holds it open for writing.
func TestInspectReadsTheVersion(t *testing.T) {
	for said, want := range map[string]string{
		"postgres (PostgreSQL) 17.5":                           "17.5",
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": "15.18",
		"postgres (PostgreSQL) 19devel":                        "19devel",
		"postgres (PostgreSQL) 13.21":                          "",
		"postgres (PostgreSQL) 9.6.24":                         "",
		"it is broken":                                         "",
		"":                                                     "",
	} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		for _, program := range []string{"postgres", "initdb"} {
			script := "#!/bin/sh\necho '" + said + "'\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700))
		}
		got, err := inspect(t.Context(), dir, account{})
		if want == "" {
			require.Error(t, err, said)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, binaries{dir: dir, version: want}, got)
	}
}

func TestInspectWantsInitdbToo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), []byte("#!/bin/sh\necho postgres x 17.5\n"), 0o700))
	_, err := inspect(t.Context(), dir, account{})
	require.ErrorIs(t, err, os.ErrNotExist)
}
