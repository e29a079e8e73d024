package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// zerolog writes the level, the time and the text of a line under these keys. A field with the same key makes a line with two
// equal keys, of which most readers keep only one.
var reservedKey = regexp.MustCompile(`\b(?:Str|Strs|Stringer|Int|Int32|Int64|Uint64|Bool|Dur|Time|Float64|Any|Interface)\("(?:message|level|time)"`)

func TestLogFieldsDoNotUseTheKeysOfZerolog(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			if found := reservedKey.FindString(line); found != "" {
				t.Errorf("%s:%d: %s): the line has this key twice", path, n+1, found)
			}
		}
		return nil
	})
	require.NoError(t, err)
}
