package retention_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// A table that another program created, with and without a column for the transaction id.
func foreign(t *testing.T) (r room, kinds map[string]retention.Purge) {
	t.Helper()
	r = room{t, testkit.Database(t)}
	r.exec(`CREATE TABLE "Events" (
		n bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), tx xid8 DEFAULT pg_current_xact_id())`)
	base := retention.Purge{Table: pgx.Identifier{"public", "Events"}, Position: "n", Age: atOnce, Batch: 10, Pause: -1}
	with := base
	with.XID = "tx"
	return r, map[string]retention.Purge{"by its column": with, "by its tuple": base}
}

func TestAForeignTableIsPurgedOfWhatIsPublished(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"by its column", "by its tuple"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r, kinds := foreign(t)
			purge := kinds[kind]
			insert := func(rows int) {
				r.exec(`INSERT INTO "Events" (at) SELECT now() FROM generate_series(1, $1)`, rows)
			}
			rows := func() int { return r.count(`SELECT count(*) FROM "Events"`) }
			run := func(s retention.Published) int {
				deleted, err := purge.Run(t.Context(), r.pool, s)
				require.NoError(t, err)
				return int(deleted)
			}
			// Other transactions of this server are open, which matters if only the tuple's xmin is known.
			settle := func() {
				var own string
				require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&own))
				testkit.Wait(t, "older transactions", func() (bool, error) {
					return r.count("SELECT count(*) WHERE pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8", own) > 0, nil
				})
			}
			insert(25)
			settle()
			require.Zero(t, run(""), "nothing is confirmed")
			// A transaction that has written within a savepoint, and commits after the snapshot.
			late := r.begin()
			_, err := late.Exec(t.Context(), `SAVEPOINT s; INSERT INTO "Events" DEFAULT VALUES; RELEASE s`)
			require.NoError(t, err)
			r.exec("SELECT pg_current_xact_id()") // ended, so that both ids of the other transaction are below the snapshot's end
			early := r.snapshot()
			require.NoError(t, late.Commit(t.Context()))
			insert(10)
			require.Equal(t, 25, run(early))
			require.Equal(t, 11, rows())

			r.exec(`INSERT INTO troupe.outbox_trouble (position, id, topic, status, attempts, max_attempts, last_error)
				SELECT n, gen_random_uuid(), 't', 'parked', 1, 8, 'e' FROM "Events" ORDER BY n LIMIT 1`)
			settle()
			require.Equal(t, 10, run(r.snapshot()))
			require.Equal(t, 1, rows(), "it is parked")
		})
	}
}

func TestAPurgeKeepsToItsLimits(t *testing.T) {
	t.Parallel()
	r, kinds := foreign(t)
	purge := kinds["by its column"]
	purge.Age, purge.CreatedAt, purge.Limit = 0, "at", 50
	r.exec(`INSERT INTO "Events" (at) SELECT now() - interval '2 hours' FROM generate_series(1, 75)`)
	r.exec(`INSERT INTO "Events" (at) SELECT now() - interval '50 minutes' FROM generate_series(1, 25)`)
	for _, want := range []int64{50, 25, 0} {
		deleted, err := purge.Run(t.Context(), r.pool, r.snapshot())
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	require.Equal(t, 25, r.count(`SELECT count(*) FROM "Events"`))

	ended, end := context.WithCancel(t.Context())
	end()
	_, err := purge.Run(ended, r.pool, r.snapshot())
	require.ErrorIs(t, err, context.Canceled)
}

func TestAPurgeThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	r, kinds := foreign(t)
	for want, change := range map[string]func(*retention.Purge){
		"no table":               func(p *retention.Purge) { p.Table = nil },
		"no column for the posi": func(p *retention.Purge) { p.Position = "" },
		"no column for the time": func(p *retention.Purge) { p.Age = 0 },
		"batch 10001":            func(p *retention.Purge) { p.Batch = 10_001 },
		"limit 5":                func(p *retention.Purge) { p.Limit = 5 },
		`no column "missing"`:    func(p *retention.Purge) { p.Position = "missing" },
		"does not exist":         func(p *retention.Purge) { p.Table = pgx.Identifier{"none"} },
	} {
		bad := kinds["by its tuple"]
		change(&bad)
		_, err := bad.Run(t.Context(), r.pool, r.snapshot())
		require.ErrorContains(t, err, want)
	}
	_, err := kinds["by its tuple"].Run(t.Context(), r.pool, "900000000:900000000:")
	require.ErrorContains(t, err, "another server")
}
