package relay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestTheEndOfAStreamThatComesAgainIsReported(t *testing.T) {
	t.Parallel()
	server := func(code string) error { return fmt.Errorf("%w: %w", errStream, &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		name                 string
		err                  error
		reported, newSlotToo bool
	}{
		{"the connection", fmt.Errorf("%w: EOF", errStream), false, false},
		{"the server stops", server("57P01"), false, false},
		{"the slot is in use", server("55006"), false, false},
		{"the server's disk is full", server("53100"), true, false},
		{"rows that do not fit the mapping", fmt.Errorf("%w: %w", errStream, errUnbound), true, false},
		{"the publication did not exist", server("42704"), true, true},
		{"rows that cannot be read", fmt.Errorf("%w: %w", errStream, errUnreadable), true, true},
		{"not of a stream", &pgconn.PgError{Code: "42704"}, false, false},
		{"unknown", errors.New("x"), false, false},
	} {
		var s stuck
		for range stuckAfter {
			s.countEnd(1, c.err)
		}
		require.Equal(t, c.reported, s.unready() != nil, c.name)
		require.Equal(t, c.newSlotToo, s.why(1) != nil, c.name)
	}
}
