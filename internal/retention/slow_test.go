package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// TestABatchThatTakesTooLongIsMadeSmaller: each record takes so long that no usual batch ends within the limit.
func TestABatchThatTakesTooLongIsMadeSmaller(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for n := range 30 {
		a.saga(fmt.Sprint(n), "completed", "91 days")
	}
	a.exec(`
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN OLD; END $$;
		CREATE TRIGGER wait BEFORE DELETE ON troupe.sagas FOR EACH ROW EXECUTE FUNCTION wait()`)
	records := retention.NewRecords(a.pool)
	records.Limit(time.Second)
	records.DoNotPause()
	testkit.Wait(t, "the removal", func() (bool, error) {
		_, err := records.Remove(t.Context())
		return len(a.list(ids)) == 0, err
	})
	require.Empty(t, a.list(logs))
}
