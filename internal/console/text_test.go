package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFilterWithNULIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, address := range []string{
		at("/dead-letters", "type", "a\x00b"), at("/dead-letters/list", "db", "order", "type", "a\x00"), at("/held", "type", "\x00"), at("/sagas", "type", "\x00"),
		at("/relay/rows", "db", "order", "type", "\xff"), at("/messages", "type", "\x00"),
	} {
		r := d.get(address)
		require.Equal(t, http.StatusBadRequest, r.Code, address)
		require.Contains(t, r.Body.String(), "type: want text in UTF-8 without the character NUL", address)
	}
	r := d.post("/relay/act", form("db", "order", "do", "pause", "reason", "a\x00b"))
	require.Equal(t, http.StatusBadRequest, r.Code)
	require.Contains(t, r.Body.String(), "reason: want text in UTF-8 without the character NUL")
}

func TestNobodyActsUnderANameOfTwoLines(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, name := range []string{"ann\r\nbob", "ann\x1b[2J", "ann\u202ebob"} {
		r := d.post("/relay/act", form("db", "order", "do", "pause", "reason", "r", "actor", name))
		require.Equal(t, http.StatusBadRequest, r.Code)
		require.Contains(t, r.Body.String(), "actor: ")
		require.Equal(t, http.StatusBadRequest, d.post("/sign-in", form("name", name, "token", token)).Code)
	}
}
