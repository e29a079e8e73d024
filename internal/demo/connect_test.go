package demo

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestAnErrorCodeOfAnyLengthIsJudged(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"28P01": true, "3D000": true, "42501": true, "57P03": false, "2": false, "": false} {
		require.Equal(t, want, hopeless(&pgconn.PgError{Code: code}), code)
	}
}
