package docs

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// Each statement of docs/idempotent-writes.md runs twice with the same arguments; the second run must change nothing.
func TestIdempotentWritesChangeNothingTheSecondTime(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, "docs/idempotent-writes.md"), -1)
	cases := []struct {
		name, check, want string
		args, late        []any // late is a message that must change nothing after args
	}{
		{
			name: "insert a row once", args: []any{"p-1", "o-1", 500}, late: []any{"p-1", "o-1", 700},
			check: "SELECT string_agg(id || ' ' || cents, ',') FROM payments", want: "p-1 500",
		},
		{
			name: "add an amount once", args: []any{"op-1", "a-1", 500}, late: []any{"op-1", "a-1", 700},
			check: "SELECT string_agg(id || ' ' || balance, ',') FROM accounts", want: "a-1 600",
		},
		{
			name: "keep the newest version", args: []any{"c-1", 2, "Ada"}, late: []any{"c-1", 1, "Augusta"},
			check: "SELECT string_agg(id || ' ' || version || ' ' || name, ',') FROM customers", want: "c-1 2 Ada",
		},
		{
			name: "set a value once", args: []any{"s-1", "T-100"}, late: []any{"s-1", "T-200"},
			check: "SELECT string_agg(id || ' ' || tracking_code, ',') FROM shipments", want: "s-1 T-100",
		},
		{
			name: "update the version you read", args: []any{"o-1", 1, "paid"}, late: []any{"o-1", 1, "open"},
			check: "SELECT string_agg(id || ' ' || version || ' ' || status, ',') FROM orders", want: "o-1 2 paid",
		},
	}
	require.Len(t, blocks, len(cases))
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE payments (id text PRIMARY KEY, order_id text NOT NULL, cents int NOT NULL);
		CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL);
		CREATE TABLE account_operations (id text PRIMARY KEY, account text NOT NULL REFERENCES accounts, cents int NOT NULL);
		CREATE TABLE customers (id text PRIMARY KEY, version int NOT NULL, name text NOT NULL);
		CREATE TABLE shipments (id text PRIMARY KEY, tracking_code text);
		CREATE TABLE orders (id text PRIMARY KEY, version int NOT NULL, status text NOT NULL);
		INSERT INTO accounts VALUES ('a-1', 100);
		INSERT INTO shipments VALUES ('s-1');
		INSERT INTO orders VALUES ('o-1', 1, 'open')`)
	require.NoError(t, err)
	for i, c := range cases {
		for _, args := range [][]any{c.args, c.args, c.late} {
			_, err := pool.Exec(t.Context(), blocks[i][1], args...)
			require.NoError(t, err, c.name)
			var got string
			require.NoError(t, pool.QueryRow(t.Context(), c.check).Scan(&got))
			require.Equal(t, c.want, got, c.name)
		}
	}
	_, err = pool.Exec(t.Context(), blocks[1][1], "op-2", "unknown", 500)
	require.Error(t, err, "an operation on an unknown account is refused, not lost")
}
