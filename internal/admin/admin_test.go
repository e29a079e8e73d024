package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
)

func TestAnActorsErrorNamesTheField(t *testing.T) {
	t.Parallel()
	require.NoError(t, admin.Actor{Name: "José"}.Check())
	require.NoError(t, admin.Actor{Name: strings.Repeat("a", admin.MaxName), Reason: strings.Repeat("r", admin.MaxReason)}.CheckReasoned())
	for text, a := range map[string]admin.Actor{
		"actor: want an actor":              {Reason: "r"},
		"actor: 201 bytes: at most 200":     {Name: strings.Repeat("a", 201), Reason: "r"},
		"actor: the name has a line break":  {Name: "ann\r\nbob", Reason: "r"},
		"reason: want a reason":             {Name: "ann", Reason: " "},
		"reason: 2001 bytes: at most 2000":  {Name: "ann", Reason: strings.Repeat("r", 2001)},
		"reason: want text in UTF-8":        {Name: "ann", Reason: "r\x00"},
		"reason: want text in UTF-8 withou": {Name: "ann", Reason: "r\xff"},
	} {
		err := a.CheckReasoned()
		require.ErrorContains(t, err, text)
		var field admin.FieldError
		require.ErrorAs(t, err, &field)
		require.True(t, strings.HasPrefix(text, field.Field+": "), text)
	}
}

func TestACursorIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	at, id := time.Date(2026, 1, 31, 12, 0, 0, 123_456_000, time.UTC), uuid.New()
	when, text, err := admin.ReadTimeCursor(admin.TimeCursor(at.In(time.FixedZone("", 3600)), "order/o-1,2"))
	require.NoError(t, err)
	require.Equal(t, at, when)
	require.Equal(t, "order/o-1,2", text)
	when, same, err := admin.ReadUUIDCursor(admin.TimeCursor(at, id.String()))
	require.NoError(t, err)
	require.Equal(t, at, when)
	require.Equal(t, id, same)
	n, text, err := admin.ReadNumberCursor(admin.NumberCursor(-7, ""))
	require.NoError(t, err)
	require.EqualValues(t, -7, n)
	require.Empty(t, text)
	for _, wrong := range []string{"", "x", ",", "x,y", "7", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z,y"} {
		_, _, err := admin.ReadUUIDCursor(wrong)
		require.ErrorAs(t, err, new(admin.FieldError), wrong)
		if wrong != "2026-01-31T12:00:00Z,y" {
			_, _, err = admin.ReadTimeCursor(wrong)
			require.ErrorAs(t, err, new(admin.FieldError), wrong)
		}
		_, _, err = admin.ReadNumberCursor(wrong)
		require.ErrorContains(t, err, "after: ")
	}
}

func TestPostgresErrorsGetTheirRemedy(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"42P01": "outbox-relay migrate", "42703": "outbox-relay migrate", "42883": "outbox-relay migrate", "3F000": "outbox-relay migrate",
		"42501": "docs/grants.md lists", "55P03": "try again",
	} {
		refused := &pgconn.PgError{Code: code, Message: "m"}
		err := admin.Explain(refused, "docs/grants.md")
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, refused)
		require.Equal(t, code == "55P03", errors.Is(err, admin.ErrBusy))
	}
	other := errors.New("other")
	require.Equal(t, other, admin.Explain(other, ""))
	require.NoError(t, admin.Explain(nil, ""))
}
