package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// TestABatchThatTakesTooLongIsMadeSmaller: each record takes so long that no batch of the usual size ends within the limit.
func TestABatchThatTakesTooLongIsMadeSmaller(t *testing.T) {
	t.Parallel()
	for name, limited := range map[string]func(archive) *retention.Records{
		"of the transaction": func(a archive) *retention.Records {
			records := retention.NewRecords(a.pool)
			records.Limit(time.Second)
			return records
		},
		"of the role": func(a archive) *retention.Records {
			config := a.pool.Config()
			config.ConnConfig.RuntimeParams["statement_timeout"] = "1s"
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return retention.NewRecords(pool)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			for n := range 30 {
				a.saga(fmt.Sprint(n), "completed", "91 days")
			}
			a.exec(`
				CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END $$;
				CREATE TRIGGER wait BEFORE DELETE ON troupe.sagas FOR EACH ROW EXECUTE FUNCTION wait()`)
			records := limited(a)
			records.DoNotPause()
			testkit.Wait(t, "the removal", func() (bool, error) {
				_, err := records.Remove(t.Context())
				return len(a.list(ids)) == 0, err
			})
			require.Empty(t, a.list(logs))
		})
	}
}
