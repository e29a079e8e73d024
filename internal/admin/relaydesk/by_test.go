package desk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
)

func TestAnActorsNameIsTextOfOneLine(t *testing.T) {
	require.NoError(t, desk.By{Actor: "José"}.Check(""))
	for _, name := range []string{"ann\r\nbob", "ann\x1b[2J", "ann\u202ebob"} {
		require.ErrorContains(t, desk.By{Actor: name, Reason: "r"}.Check(desk.WhyPause), "actor: the name has a line break")
	}
}
