package plain_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/plain"
)

func TestALogHasNoControlCharacters(t *testing.T) {
	const key = "a\x1b[2J\u009b2J\u202e\u2028\U000e0001ä李😀\xff"
	var b bytes.Buffer
	log := zerolog.New(plain.Log(&b))
	log.Info().Str("key", key).Msg("first")
	log.Info().Str("key", "plain").Msg("second")
	for _, control := range []string{"\x1b", "\u009b", "\u202e", "\u2028", "\U000e0001"} {
		require.NotContains(t, b.String(), control)
	}
	first, second, _ := strings.Cut(b.String(), "\n")
	var line struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(first), &line))
	require.Equal(t, strings.ToValidUTF8(key, "\ufffd"), line.Key)
	require.Contains(t, first, "ä李😀")
	require.Equal(t, `{"level":"info","key":"plain","message":"second"}`+"\n", second)
}

// TestEachProgramEscapesItsLog reads the code that makes the logs of programs.
func TestEachProgramEscapesItsLog(t *testing.T) {
	logs := 0
	for _, folder := range []string{"../../cmd/*", "../sidecar", "../demo", "../demo/run"} {
		names, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, to := range regexp.MustCompile(`zerolog\.New\((.*)`).FindAllStringSubmatch(string(text), -1) {
				escaped := strings.HasPrefix(to[1], "plain.Log(") || strings.HasPrefix(to[1], "out)") && bytes.Contains(text, []byte("out := &leveled{Writer: plain.Log(p.Stderr)}"))
				require.True(t, escaped || strings.HasPrefix(to[1], "io.Discard)"), "%s: %s", name, to[0])
				logs++
			}
		}
	}
	require.Greater(t, logs, 7)
}
