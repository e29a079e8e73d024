package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestOneSetOfVariablesIsEnough runs commands with the variables of a service, and with the variables of a flow.
func TestOneSetOfVariablesIsEnough(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	url := testkit.DatabaseURL(t, pool)
	service, flow := []string{"DATABASE_URL=" + url}, []string{"DATABASE_URL=", "TROUPE_DATABASES=order=" + url}
	both := []string{"DATABASE_URL=", "TROUPE_DATABASES=order=" + url + " payment=postgres://someone:hidden@127.0.0.1:1/payment"}
	for _, c := range []struct {
		env    []string
		args   []string
		status int
		want   string
	}{
		{service, []string{"dlq", "list"}, 0, "No dead letters."},
		{flow, []string{"dlq", "list"}, 0, "No dead letters."},
		{both, []string{"dlq", "list"}, 2, "TROUPE_DATABASES has order, payment: name one of them, as --database-url order"},
		{both, []string{"dlq", "list", "--database-url", "order"}, 0, "No dead letters."},
		{service, []string{"trace", "o-1"}, 0, "o-1"},
		{flow, []string{"trace", "o-1"}, 0, "o-1"},
	} {
		o := finish(t, command(t, c.env, c.args...))
		require.Equal(t, c.status, o.status, "%v: %s%s", c.args, o.stdout, o.stderr)
		require.Contains(t, o.stdout+o.stderr, c.want)
		require.NotContains(t, o.stderr, "hidden")
	}
}
