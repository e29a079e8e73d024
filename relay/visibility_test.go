package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// setStandbys sets synchronous_standby_names of the server.
func (s *stage) setStandbys(names string) {
	s.t.Helper()
	s.exec("ALTER SYSTEM SET synchronous_standby_names = '" + names + "'")
	s.exec("SELECT pg_reload_conf()")
	testkit.Wait(s.t, "the setting", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = $1", names) == 1, nil
	})
}

// standbys has the settings of a server on which a transaction may request to wait for a standby, which never comes. The
// server starts with them: after a reload, the process that makes commits wait may read them later than a session that
// commits.
var standbys = map[string]string{"synchronous_standby_names": "standby", "synchronous_commit": "local"}

// insertUnseen writes a row, on a server with standbys, whose commit is in the log and waits for a synchronous standby that
// does not come until letGo: no other session sees the row meanwhile.
func (s *stage) insertUnseen(topic, key, payload string) (letGo func()) {
	s.t.Helper()
	s.exec("CHECKPOINT")                      // by the process that makes commits wait: it has started
	s.t.Cleanup(func() { s.setStandbys("") }) // a pool with the writer's connection could not be closed
	wrote := make(chan error, 1)
	go func() {
		_, err := s.pool.Exec(context.Background(), fmt.Sprintf(`SET synchronous_commit = 'on'; BEGIN;
			INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('%s', '%s', 'Thing', '%s'); COMMIT; SET synchronous_commit = 'local'`, topic, key, payload))
		wrote <- err
	}()
	testkit.Wait(s.t, "the commit to wait", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == 1, nil
	})
	return func() {
		s.t.Helper()
		s.setStandbys("")
		require.NoError(s.t, <-wrote)
	}
}

// The log has a row before other sessions see it. Its failure is not treated as the failure of a deleted row.
func TestARowThatIsNotVisibleYetKeepsItsFailure(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, standbys)
	cfg := s.wal()
	cfg.UnknownTopic = time.Hour
	r := s.start(cfg)
	s.waitStream()
	letGo := s.insertUnseen(s.flow+".late.commands", "k", "1")
	testkit.Wait(t, "failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 1, nil })
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
	require.NoError(t, r.stop())
	s.exec("CREATE FUNCTION tidied() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY tidied; RETURN NULL; END'")
	s.exec("CREATE TRIGGER tidied AFTER DELETE ON troupe.outbox_failures FOR EACH STATEMENT EXECUTE FUNCTION tidied()")
	listener, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer listener.Release()
	_, err = listener.Exec(t.Context(), "LISTEN tidied")
	require.NoError(t, err)
	s.start(cfg) // a term begins with housekeeping
	_, err = listener.Conn().WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures"))
	letGo()
	s.createTopic("late", 1)
	require.Equal(t, []string{"1"}, values(s.gather(1, s.flow+".late.commands")))
}

// A row may wait behind another one of its key before other sessions see it. It is published when they do, although nothing that it waits
// for has changed since the relay last looked, and before later rows of its key.
func TestARowThatIsNotVisibleYetIsPublishedInItsOrder(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, standbys)
	cfg := s.wal()
	cfg.UnknownTopic, cfg.Retry = time.Hour, retry.Policy{Initial: 50 * time.Millisecond, Cap: 100 * time.Millisecond}
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.flow+".late.commands", "k", "0")
	failures := func(status string) func() (bool, error) {
		return func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = $1", status) == 1, nil
		}
	}
	testkit.Wait(t, "the first row to fail", failures("retrying"))
	letGo := s.insertUnseen(s.topic, "k", "1")
	testkit.Wait(t, "the second row to wait", failures("waiting"))
	s.createTopic("late", 1)
	s.gather(1, s.flow+".late.commands")
	published := time.Now()
	testkit.Wait(t, "a look for rows that wait", func() (bool, error) { // one each second
		return r.Status().Progress.After(published.Add(3 * time.Second)), nil
	})
	letGo()
	s.insert(s.topic, "k", "2")
	require.Equal(t, []string{"1", "2"}, values(s.gather(2, s.topic)))
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 0, nil })
}

// The failure of a row that was deleted is deleted too.
func TestAFailureOfARemovedRowIsForgotten(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil) // no other test's open transaction delays it
	cfg := s.config()
	cfg.UnknownTopic = time.Hour
	r := s.start(cfg)
	s.insert(s.flow+".none.commands", "k", "1")
	testkit.Wait(t, "failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 1, nil })
	require.NoError(t, r.stop())
	s.exec("DELETE FROM troupe.outbox")
	s.start(cfg)
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 0, nil })
}

// The row of the checkpoint may not be visible yet when the next relay starts: the log shows that it is of this server.
func TestExactlyOnceContinuesFromARowThatIsNotVisibleYet(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, standbys)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ToLower(strings.ReplaceAll(s.flow, "-", "_"))
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.waitProven()
	letGo := s.insertUnseen(s.topic, "k", "1")
	testkit.Wait(t, "the row", func() (bool, error) { return len(s.committed(s.topic)) == 2, nil })
	require.NoError(t, r.stop())
	r = s.start(cfg)
	s.waitStream()
	letGo()
	s.insert(s.topic, "k", "2")
	testkit.Wait(t, "the last row", func() (bool, error) { return len(s.committed(s.topic)) >= 3, nil })
	require.Len(t, s.committed(s.topic), 3)
	require.NoError(t, r.stop())
}

// synchronous_standby_names = '*' matches the relay's walsender too: writers wait for the relay, but the relay does not wait
// for itself.
func TestARelayThatIsTakenForASynchronousStandbyDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.wal()
	logs := &lines{}
	cfg.Log = logs.logger(t)
	r := s.start(cfg)
	s.waitStream()
	require.NotContains(t, logs.String(), "synchronous_standby_names")
	s.setStandbys("*")
	for n := range 3 {
		s.insert(s.topic, "k", fmt.Sprint(n)) // returns once a standby has confirmed it
	}
	require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, s.topic)))
	require.NoError(t, r.stop())
	s.start(cfg)
	s.insert(s.topic, "k", "3")
	testkit.Wait(t, "a word about the setting", func() (bool, error) {
		return strings.Contains(logs.String(), "synchronous_standby_names"), nil
	})
	s.setStandbys("")
}
