package relay_test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// A promoted standby has the log of its primary up to the switch to its own timeline: a checkpoint there is still good, also if the
// standby does not have what the relay stored in the database last.
func TestExactlyOnceContinuesFromACheckpointOfTheOldPrimary(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct {
		name   string
		change func(at map[string]any, end wal.LSN)
		good   bool
	}{
		{"before the switch", func(map[string]any, wal.LSN) {}, true},
		{"behind the switch", func(at map[string]any, end wal.LSN) { at["lsn"] = (end + 1<<20).String() }, false},
		{"failures recorded behind the switch", func(at map[string]any, end wal.LSN) { at["recorded"] = (end + 1<<20).String() }, false},
		{"of a timeline that this server never had", func(at map[string]any, _ wal.LSN) { at["timeline"] = 7 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			home, err := os.MkdirTemp("", "failover") // not t.TempDir: root runs a server as another user, and that user could not read it
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
			require.NoError(t, os.Chmod(home, 0o755))
			server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{
				Dir: filepath.Join(home, "a"), Settings: map[string]string{"shared_buffers": "32MB"},
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Close()) })
			s := &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
			s.topic = s.createTopic("main", 3)
			address, err := server.CreateDatabase(t.Context(), "shop", "")
			require.NoError(t, err)
			require.NoError(t, migrations.Up(t.Context(), address))
			s.pool = poolOf(t, address)
			cfg := s.exactly()
			cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
			first := s.startStreaming(cfg)
			require.NoError(t, first.stop())

			s.insert(s.topic, "k", "published by the old primary's relay")
			at := s.checkpointOfLastCommit(cfg.Slot)
			s.insert(s.topic, "k", "not published yet")
			var end string
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
			lsn, err := wal.ParseLSN(end)
			require.NoError(t, err)
			c.change(at, lsn)
			s.storeCheckpoint(cfg.Slot, at)

			require.NoError(t, server.Stop(t.Context()))
			signal := filepath.Join(home, "a", "data", "standby.signal")
			require.NoError(t, exec.Command("cp", "-a", filepath.Join(home, "a", "data", "PG_VERSION"), signal).Run()) // with its owner
			require.NoError(t, server.Start(t.Context()))
			s.pool = poolOf(t, address) // the connections of the other one have ended
			s.exec("SELECT pg_promote()")
			cfg.Pool = s.pool
			r := s.start(cfg)
			want := []string{"not published yet", "new"}
			if !c.good {
				want = append([]string{"published by the old primary's relay"}, want...)
			}
			s.insert(s.topic, "k", "new")
			testkit.Wait(t, "the rows", func() (bool, error) { return len(s.committed(s.topic)) >= len(want), nil })
			require.Equal(t, want, values(s.committed(s.topic)))
			require.Equal(t, c.good, r.Status().Repeats == "", r.Status().Repeats)

			// The next relay begins at the checkpoint of this one, which is of the new timeline.
			testkit.Wait(t, "a checkpoint", func() (bool, error) {
				stored := s.storedCheckpoint(cfg.Slot)
				return stored["timeline"] == float64(2), nil
			})
			require.NoError(t, r.stop())
		})
	}
}

// checkpointOfLastCommit returns the checkpoint behind the last transaction in the slot's log.
func (s *stage) checkpointOfLastCommit(slot string) map[string]any {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'troupe_outbox') WHERE substr(data, 1, 1) = 'C'`, slot)
	require.NoError(s.t, err)
	defer rows.Close()
	var last []byte
	for rows.Next() {
		require.NoError(s.t, rows.Scan(&last))
	}
	require.NoError(s.t, rows.Err())
	var system string
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT system_identifier FROM pg_control_system()").Scan(&system))
	microseconds := int64(binary.BigEndian.Uint64(last[18:26]))
	return map[string]any{
		"lsn": wal.LSN(binary.BigEndian.Uint64(last[10:18])).String(), "system": system, "timeline": 1, "position": 1,
		"committed": time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(microseconds) * time.Microsecond),
		"id":        "01a1ffb2-4031-704f-a29c-2f22c4b1d21d",
	}
}

func (s *stage) storeCheckpoint(slot string, at map[string]any) {
	s.t.Helper()
	value, err := json.Marshal(at)
	require.NoError(s.t, err)
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, client.ProduceSync(s.t.Context(), &kgo.Record{Topic: topics.Relay(slot), Key: []byte(slot), Value: value}).FirstErr())
}

// storedCheckpoint returns the last checkpoint in the topic.
func (s *stage) storedCheckpoint(slot string) (at map[string]any) {
	s.t.Helper()
	for _, r := range s.committed(topics.Relay(slot)) {
		if string(r.Key) == slot {
			at = nil
			require.NoError(s.t, json.Unmarshal(r.Value, &at))
		}
	}
	return at
}

// The checkpoint is committed after the record of a failed row, which is behind it in the log: a standby may have the one and not the other.
func TestACheckpointNamesTheEndOfTheRecordedFailures(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	r := s.startStreaming(cfg)
	var before string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&before))
	s.insert("not a topic", "k", "failed")
	testkit.Wait(t, "a checkpoint behind the failed row", func() (bool, error) {
		at := s.storedCheckpoint(cfg.Slot)
		if at == nil || at["position"] == float64(0) {
			return false, nil
		}
		var ordered bool
		err := s.pool.QueryRow(t.Context(), "SELECT $1::pg_lsn < $2::pg_lsn AND $2::pg_lsn < $3::pg_lsn", before, at["lsn"], at["recorded"]).Scan(&ordered)
		return ordered, err
	})
	require.NoError(t, r.stop())
}

// A failed row is neither published nor in the slot's stream behind the checkpoint. Its record must be on disk before the checkpoint is
// committed to Kafka, also if the role does not wait for the disk: the server is killed at once after that.
func TestARecordedFailureOutlivesACrashWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	needsLog(t)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "32MB", "synchronous_commit": "off", "wal_writer_delay": "10s",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s := &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	s.topic = s.createTopic("main", 3)
	address, err := server.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	s.pool = poolOf(t, address)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	r := s.startStreaming(cfg)
	s.exec(`BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('not a topic', 'k', 'Thing', 'failed'); COMMIT`)
	testkit.Wait(t, "a checkpoint behind the failed row", func() (bool, error) {
		at := s.storedCheckpoint(cfg.Slot)
		return at != nil && at["position"] != float64(0), nil
	})
	require.NoError(t, server.Kill())
	_ = r.stop() // the database is away

	require.NoError(t, server.Start(t.Context()))
	s.pool = poolOf(t, address)
	cfg.Pool = s.pool
	r = s.start(cfg)
	s.insert(s.topic, "k", "goes on")
	testkit.Wait(t, "the failed row's record", func() (bool, error) {
		return len(s.committed(s.topic)) == 1 || s.count("SELECT count(*) FROM troupe.outbox_failures") > 0, nil
	})
	require.Positive(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
	require.NoError(t, r.stop())
}

// The image of a disk may be from between the commit of a failed row and its record. The server that is set back to it keeps its timeline.
func TestACheckpointIsNotTrustedWithoutTheRecordsOfItsFailures(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	s.insert(s.topic, "k", "failed at the server of before")
	at := s.checkpointOfLastCommit(cfg.Slot)
	lsn, err := wal.ParseLSN(at["lsn"].(string))
	require.NoError(t, err)
	at["recorded"] = (lsn + 1<<40).String()
	s.storeCheckpoint(cfg.Slot, at)
	r := s.start(cfg)
	s.insert(s.topic, "k", "new")
	testkit.Wait(t, "the new row", func() (bool, error) {
		return slices.Contains(values(s.committed(s.topic)), "new"), nil
	})
	require.Equal(t, []string{"failed at the server of before", "new"}, values(s.committed(s.topic)))
	require.Contains(t, r.Status().Repeats, "lost")
	require.NoError(t, r.stop())
}

// A relay that has published nothing since its start has stored the LSN that was confirmed to Postgres as its checkpoint, without a time of
// a commit. The log of a server that is set back to an earlier image of its disk may have another commit that ends at this LSN.
func TestACheckpointWithoutACommitIsNotTrustedBehindTheConfirmedLSN(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	first := s.startStreaming(cfg)
	testkit.Wait(t, "a checkpoint", func() (bool, error) { return s.storedCheckpoint(cfg.Slot) != nil, nil })
	require.NotContains(t, s.storedCheckpoint(cfg.Slot), "committed")
	require.NoError(t, first.stop())
	s.insert(s.topic, "k", "written after the server was set back")
	at := s.checkpointOfLastCommit(cfg.Slot)
	delete(at, "committed")
	s.storeCheckpoint(cfg.Slot, at)
	r := s.start(cfg)
	s.insert(s.topic, "k", "new")
	testkit.Wait(t, "the new row", func() (bool, error) {
		return slices.Contains(values(s.committed(s.topic)), "new"), nil
	})
	require.Equal(t, []string{"written after the server was set back", "new"}, values(s.committed(s.topic)))
	require.Contains(t, r.Status().Repeats, "lost")
	require.NoError(t, r.stop())
}

// A server is set back to an image of its disk that has the commit of a failed row, and not its record. Services write before the relay
// starts, so the log has passed the checkpoint's field recorded again. The checkpoint has the content of a message that is in the log before
// recorded, and only a log with that message has the record.
func TestACheckpointIsNotTrustedIfTheLogLacksTheRecordOfAFailedRowAndHasGrown(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for name, test := range map[string]struct{ message, server, trusted bool }{
		"set back":          {},
		"not set back":      {message: true, trusted: true},
		"the server ran on": {server: true, trusted: true}, // then its log is not searched for the message
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			cfg := s.exactly()
			cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
			first := s.startStreaming(cfg)
			require.NoError(t, first.stop())
			s.insert(s.topic, "k", "recorded in the lost history")
			at := s.checkpointOfLastCommit(cfg.Slot)
			at["message"] = uuid.NewString()
			if test.server {
				var server string
				require.NoError(t, s.pool.QueryRow(t.Context(), pg.ServerSQL).Scan(&server))
				at["server"] = server
			}
			if test.message {
				s.exec("SELECT pg_logical_emit_message(true, 'troupe', $1)", at["message"])
			}
			s.insert(s.topic, "k", "next")
			var recorded string
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&recorded))
			at["recorded"] = recorded
			s.storeCheckpoint(cfg.Slot, at)
			s.insert(s.topic, "k", "last")

			want := []string{"recorded in the lost history", "next", "last"}
			if test.trusted {
				want = want[1:]
			}
			r := s.start(cfg)
			testkit.Wait(t, "the rows", func() (bool, error) { return len(s.committed(s.topic)) >= len(want), nil })
			require.Equal(t, want, values(s.committed(s.topic)))
			require.Equal(t, test.trusted, r.Status().Repeats == "", r.Status().Repeats)
			require.NotEqual(t, at["message"], s.storedCheckpoint(cfg.Slot)["message"])
			require.NoError(t, r.stop())
		})
	}
}
