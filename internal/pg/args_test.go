package pg_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

func TestArgsStandWhereTheStatementNamesThem(t *testing.T) {
	const sql = "SELECT @b::text || 'as @a is' || @a -- @c\n || @b"
	for _, values := range [][2]string{{"1", "2"}, {"3", "4"}} { // the second time the statement is cached
		text, args, err := pg.Args{"a": values[0], "b": values[1], "unused": 0}.RewriteQuery(context.Background(), nil, sql, nil)
		require.NoError(t, err)
		require.Equal(t, "SELECT $1::text || 'as @a is' || $2 -- @c\n || $1", text)
		require.Equal(t, []any{values[1], values[0]}, args)
	}
}

func TestAMissingArgumentIsAnError(t *testing.T) {
	const sql = "SELECT @there, @gone"
	_, _, err := pg.Args{"there": 1}.RewriteQuery(context.Background(), nil, sql, nil)
	require.ErrorContains(t, err, "argument number 2 is missing")
	_, args, err := pg.Args{"there": nil, "gone": 2}.RewriteQuery(context.Background(), nil, sql, nil)
	require.NoError(t, err)
	require.Equal(t, []any{nil, 2}, args)
	_, _, err = pg.Args{"there": 1}.RewriteQuery(context.Background(), nil, sql, nil)
	require.ErrorContains(t, err, "argument gone is missing")
}
