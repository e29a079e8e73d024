package console

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
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

// A producer chooses the key of a saga, and an operator copies the command of a page into a shell.
func TestEachValueOfACommandOnAPageIsOneArgument(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	values := 0
	for _, name := range names {
		text, err := files.ReadFile(name)
		require.NoError(t, err)
		for _, command := range regexp.MustCompile(`<code>(troupe|outbox-relay) [^<]*</code>`).FindAllString(string(text), -1) {
			for _, value := range regexp.MustCompile(`{{[^}]*}}`).FindAllString(command, -1) {
				if !strings.HasPrefix(value, "{{if ") && !strings.HasPrefix(value, "{{range ") && value != "{{end}}" && value != "{{else}}" {
					require.True(t, strings.HasPrefix(value, "{{argument ") || strings.HasPrefix(value, "{{operand "), "%s: %s", name, command)
					values++
				}
			}
		}
	}
	require.Greater(t, values, 8)
}
