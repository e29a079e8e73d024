package plain_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/plain"
)

func TestAnArgumentIsOneArgumentOfAShell(t *testing.T) {
	require.Equal(t, "order/o-1001", plain.Argument("order/o-1001"))
	require.Equal(t, "''", plain.Argument(""))
	for _, text := range []string{
		"", "o 1", "o-1; echo no", "o'1", `o"1`, "'; echo no; '", `\`, `o\'; echo no #`, "$(echo no)", "`echo no`", "${HOME}", "*", "~", "o-1 && echo no", "!!", "李",
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '<%s>' `+plain.Argument(text)).CombinedOutput()
		require.NoError(t, err, text)
		require.Equal(t, "<"+text+">", string(out))
	}
	require.Equal(t, "'a·echo no'", plain.Argument("a\necho no"))
	for n := range 8 { // wherever the cut is
		long := plain.Argument(strings.Repeat("a", 994+n) + strings.Repeat("'", 10) + "; echo no")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\n' "+long).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(out), "\n"))
	}
}

func TestAnOperandIsNoFlag(t *testing.T) {
	require.Equal(t, "order/o-1001", plain.Operand("order/o-1001"))
	require.Equal(t, "-- --database-url=postgres://h/d", plain.Operand("--database-url=postgres://h/d"))
	require.Equal(t, "-- '-x; echo no'", plain.Operand("-x; echo no"))
}
