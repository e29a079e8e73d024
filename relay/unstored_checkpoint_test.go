package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// While the checkpoint cannot be stored, rows are published all the same. But a crash would repeat all of them, and the server keeps its
// log, so an operator has to know.
func TestARelayThatCannotStoreItsCheckpointIsNotReady(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.wal()
	cfg.Lease = time.Second
	r := s.start(cfg)
	s.waitStream()
	s.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON troupe.relay_state FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	s.insert(s.topic, "k", "0")
	require.Equal(t, []string{"0"}, values(s.gather(1, s.topic)))
	testkit.Wait(t, "the reason", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "the checkpoint was not stored") && strings.Contains(err.Error(), "no room"), nil
	})
	s.exec("DROP TRIGGER refuse ON troupe.relay_state")
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}
