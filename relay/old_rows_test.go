package relay_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A row has 32 bits of the transaction id by which a poll recognises that a stream has published it. The rows are removed before these
// bits are of another transaction too: else a server with many transactions would let a poll publish its oldest rows again.
func TestRowsThatAStreamPublishedAreNotRepeatedWhenTheIDsOfTransactionsComeAgain(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, server := newServer(t, nil)
	s.needsResetLog()
	r := s.start(s.wal())
	s.waitStream()
	s.insert(s.topic, "k", "0")
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return pgx.BeginFunc(t.Context(), tx, func(savepoint pgx.Tx) error {
			_, err := savepoint.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'Thing', '1')", s.topic)
			return err
		})
	}))
	s.waitProven()
	require.NoError(t, r.stop())

	cfg := s.config()
	cfg.Source, cfg.Delivery = relay.Poll, relay.AtLeastOnce
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.OldAge(0)
	r = s.run(made)
	s.insert(s.topic, "k", "2")
	testkit.Wait(t, "the old rows to be gone", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox") == 0, nil })
	require.NoError(t, r.stop())

	s.resetLog(server, "-e", "1") // 4,294,967,296 transactions later
	cfg.Pool = s.pool
	r = s.start(cfg)
	s.insert(s.topic, "k", "3")
	testkit.Wait(t, "the last row", func() (bool, error) { return r.Status().Published > 0, nil })
	s.gather(4, s.topic)
	require.EqualValues(t, 1, r.Status().Published)
	require.NoError(t, r.stop())
}

// needsResetLog skips the test if pg_resetwal is missing, and returns its path and the server's data directory.
func (s *stage) needsResetLog() (reset, data string) {
	s.t.Helper()
	var bin string
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT setting, current_setting('data_directory') FROM pg_config WHERE name = 'BINDIR'").Scan(&bin, &data))
	reset = filepath.Join(bin, "pg_resetwal")
	if _, err := os.Stat(reset); err != nil {
		s.t.Skip("the installed Postgres lacks pg_resetwal")
	}
	return reset, data
}

// resetLog stops the server, calls pg_resetwal with flags, and starts the server again.
func (s *stage) resetLog(server *devstack.Postgres, flags ...string) {
	s.t.Helper()
	reset, data := s.needsResetLog()
	address := s.pool.Config().ConnString()
	s.pool.Close()
	require.NoError(s.t, server.Stop(s.t.Context()))
	owner, err := os.Stat(data)
	require.NoError(s.t, err)
	command := exec.Command(reset, append(flags, "-D", data)...)
	if of, known := owner.Sys().(*syscall.Stat_t); known && os.Getuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: of.Uid, Gid: of.Gid}}
		command.Dir = data
	}
	out, err := command.CombinedOutput()
	require.NoError(s.t, err, string(out))
	require.NoError(s.t, server.Start(context.Background()))
	s.pool = poolOf(s.t, address)
}

// After 2^31 transactions the 32 bits of a record's xmin seem to be of a later transaction. The record of a row that an operator has deleted
// is deleted all the same: other rows of its key wait behind it.
func TestTheRecordOfADeletedRowIsForgottenHoweverOldItIs(t *testing.T) {
	t.Parallel()
	s, server := newServer(t, nil)
	s.needsResetLog()
	s.exec(`WITH new AS (INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('a.b.commands', 'k', 'Thing', '0') RETURNING position, id, topic)
		INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'k', 'parked', 1, 1, 'denied' FROM new`)
	freeze := func() { // no transaction id of before is looked up any more
		for _, name := range []string{"postgres", "template1", s.pool.Config().ConnConfig.Database} {
			config := s.pool.Config().ConnConfig.Copy()
			config.Database = name
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "VACUUM FREEZE")
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))
		}
		s.exec("UPDATE pg_database SET datfrozenxid = (SELECT datfrozenxid FROM pg_database WHERE datname = current_database()) WHERE NOT datallowconn")
		s.exec("VACUUM FREEZE pg_database") // the server computes its limit again
		s.exec("CHECKPOINT")
	}
	freeze()
	s.resetLog(server, "-x", "2143289344") // the first of a file of pg_xact, and before the limit at which the server stops
	freeze()
	s.resetLog(server, "-x", "2148532224") // more than 2^31
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE age(xmin) < 0"))
	s.exec("DELETE FROM troupe.outbox")
	cfg := s.config()
	cfg.Source, cfg.Delivery = relay.Poll, relay.AtLeastOnce
	s.start(cfg)
	testkit.Wait(t, "the record to be gone", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 0, nil })
}

// A poll removes the rows that a stream has published, once they are old. It publishes a row that was restored since, and keeps the place of
// a row that could not be published.
func TestOldRowsThatAStreamPublishedAreRemovedUnderPoll(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		s := newStage(t)
		cfg := s.wal()
		cfg.UnknownTopic = time.Second
		r := s.start(cfg)
		s.waitStream()
		s.insert(s.topic, "k", "0")
		s.insert("not a topic", "parked", "0")
		s.insert(s.topic, "k", "1")
		s.waitProven()
		testkit.Wait(t, "a parked row", func() (bool, error) { return r.Status().Parked == 1, nil })
		require.NoError(t, r.stop())
		s.exec("INSERT INTO troupe.outbox (xid, topic, key, type, payload) VALUES ('3', $1, 'k', 'T', '2')", s.topic)

		cfg = s.config()
		cfg.Source, cfg.Delivery, cfg.Shards = relay.Poll, relay.AtLeastOnce, shards
		made, err := relay.New(cfg)
		require.NoError(t, err)
		made.OldAge(0)
		r = s.run(made)
		testkit.Wait(t, "the old rows to be gone", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox") == 1, nil })
		require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures JOIN troupe.outbox USING (position, id) WHERE status = 'parked'"))
		require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, s.topic)))
		require.EqualValues(t, 1, r.Status().Published)
		require.NoError(t, r.stop())
	}
}
