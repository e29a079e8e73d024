package pg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

func TestErrorsAreClassified(t *testing.T) {
	state := func(code string) error { return fmt.Errorf("charge: %w", &pgconn.PgError{Code: code}) }
	_, refused := pgx.Connect(context.Background(), "postgres://127.0.0.1:1/none")
	require.Error(t, refused)
	for _, c := range []struct {
		name string
		err  error
		want pg.Class
	}{
		{"no error", nil, pg.Unknown},
		{"an error of the handler", errors.New("no such title"), pg.Unknown},
		{"a connection refused", refused, pg.Unavailable},
		{"a connection cut", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), pg.Unavailable},
		{"a used-up context", context.DeadlineExceeded, pg.Unknown},
		{"administrator's command", state("57P01"), pg.Unavailable},
		{"too many connections", state("53300"), pg.Unavailable},
		{"serialisation failure", state("40001"), pg.Conflict},
		{"deadlock", state("40P01"), pg.Conflict},
		{"statement time-out", state("57014"), pg.Transient},
		{"unique violation", state("23505"), pg.Transient},
		{"table not there yet", state("42P01"), pg.Transient},
		{"check violation", state("23514"), pg.Permanent},
		{"number out of range", state("22003"), pg.Permanent},
		{"a pooler's error without a code", state(""), pg.Transient},
	} {
		require.Equal(t, c.want, pg.Classify(c.err), c.name)
	}
}
