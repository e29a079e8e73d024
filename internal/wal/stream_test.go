package wal_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// scripts lists the statements that the golden files were captured from. -update captures them again.
var scripts = map[string][]string{
	"outbox": {
		`INSERT INTO troupe.outbox (id, topic, key, type, headers, payload, created_at) VALUES
			('01a1ffa3-35eb-7fab-9d24-07e11617bb20', 'shop.order.commands', 'ключ', 'Thing', '{"a": "é", "b": [1, 2.50]}', '\x00ff', '2026-02-03 04:05:06.789+00')`,
		`INSERT INTO troupe.outbox (id, topic, type, created_at) VALUES
			('01a1ffa3-35eb-7fab-9d24-07e11617bb21', 'shop.order.commands', 'Thing', '2026-02-03 04:05:06+00'),
			('01a1ffa3-35eb-7fab-9d24-07e11617bb22', 'shop.order.commands', 'Other', '2026-02-03 04:05:06+00')`,
	},
	"large": {`INSERT INTO troupe.outbox (id, topic, key_bytes, type, payload, created_at) VALUES
		('01a1ffa3-35eb-7fab-9d24-07e11617bb23', 'shop.order.commands', '\xff00', 'Thing', decode(repeat('00', 3000), 'hex'), '2026-02-03 04:05:06+00')`},
	"message": {`SELECT pg_logical_emit_message(true, 'troupe', 'heartbeat')`},
	"altered": {
		`INSERT INTO troupe.outbox (id, topic, type, created_at) VALUES ('01a1ffa3-35eb-7fab-9d24-07e11617bb24', 't', 'T', '2026-02-03 04:05:06+00')`,
		`ALTER TABLE troupe.outbox ADD COLUMN tenant text DEFAULT 'none'`,
		`INSERT INTO troupe.outbox (id, topic, type, created_at) VALUES ('01a1ffa3-35eb-7fab-9d24-07e11617bb25', 't', 'T', '2026-02-03 04:05:06+00')`,
	},
	"savepoint": {`BEGIN; INSERT INTO troupe.outbox (topic, type) VALUES ('never', 'T'); ROLLBACK;
		BEGIN; SAVEPOINT a; INSERT INTO troupe.outbox (topic, type) VALUES ('never', 'T'); ROLLBACK TO a;
		INSERT INTO troupe.outbox (id, topic, type, created_at) VALUES ('01a1ffa3-35eb-7fab-9d24-07e11617bb26', 't', 'T', '2026-02-03 04:05:06+00'); COMMIT`},
}

// A current server sends for each script the messages of the golden file, except for numbers that it assigns.
func TestTheGoldenFilesAreWhatAServerSays(t *testing.T) {
	t.Parallel()
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := capture(t, script)
			if *update {
				var text strings.Builder
				for _, m := range messages {
					text.WriteString(hex.EncodeToString(m) + "\n")
				}
				require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".hex"), []byte(text.String()), 0o600))
			}
			require.Equal(t, stable(tell(t, said(t, name))), stable(tell(t, messages)))
		})
	}
}

// stable removes the numbers that every server assigns by itself.
func stable(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "begin", "commit", "message":
			_, quoted, _ := strings.Cut(line, `"`)
			line = word + " " + quoted + "\n"
		case "position", "xid":
			line = word + "\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

// capture runs a script and returns its messages of pgoutput.
func capture(t *testing.T, script []string) (messages [][]byte) {
	pool := testkit.Database(t)
	config := pool.Config()
	conn, err := wal.Connect(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close()
	slot := "golden_" + config.ConnConfig.Database
	_, err = conn.CreateSlot(t.Context(), slot, false)
	require.NoError(t, err)
	writer, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	require.NoError(t, err)
	defer writer.Close(t.Context())
	for _, statement := range script {
		_, err := writer.PgConn().Exec(t.Context(), statement).ReadAll()
		require.NoError(t, err)
	}
	rows, err := writer.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'troupe_outbox', 'binary', 'true', 'messages', 'true')`, slot)
	require.NoError(t, err)
	messages, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	return messages
}

// A stream returns the transactions committed after the confirmed position, or after a later one, and only Report moves that
// position.
func TestAStreamGoesOnFromWhatWasReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	config := pool.Config()
	slot := "stream_" + config.ConnConfig.Database
	first, err := wal.Connect(t.Context(), config)
	require.NoError(t, err)
	system, err := first.Identify(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, system.ID)
	require.EqualValues(t, 1, system.Timeline)
	from, err := first.CreateSlot(t.Context(), slot, false)
	require.NoError(t, err)
	require.Positive(t, from)
	_, err = first.CreateSlot(t.Context(), slot, false)
	require.ErrorContains(t, err, "already exists")
	require.NoError(t, first.Start(t.Context(), slot, "troupe_outbox", 0))
	beat := func(text string) {
		_, err := pool.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'test', $1::text)", text)
		require.NoError(t, err)
	}
	next := func(c *wal.Conn) (content string, end wal.LSN) {
		for {
			e, err := c.Next()
			require.NoError(t, err)
			switch e.Kind {
			case wal.Message:
				content = string(e.Content)
			case wal.Commit:
				if content != "" {
					return content, e.LSN
				}
			}
		}
	}
	beat("one")
	beat("two")
	content, end := next(first)
	require.Equal(t, "one", content)
	content, _ = next(first)
	require.Equal(t, "two", content)

	second, err := wal.Connect(t.Context(), config)
	require.NoError(t, err)
	require.ErrorIs(t, second.Start(t.Context(), slot, "troupe_outbox", 0), wal.ErrActive)
	second.Close()

	require.NoError(t, first.Report(end))
	testkit.Wait(t, "the report to arrive", func() (bool, error) {
		var there bool
		err := pool.QueryRow(t.Context(), "SELECT confirmed_flush_lsn = $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2",
			end.String(), slot).Scan(&there)
		return there, err
	})
	first.Close()
	for err == nil { // events that had arrived before the end are still returned
		_, err = first.Next()
	}
	var third *wal.Conn
	testkit.Wait(t, "the slot to be free", func() (bool, error) {
		third, err = wal.Connect(t.Context(), config)
		if err == nil {
			if err = third.Start(t.Context(), slot, "troupe_outbox", 0); err != nil {
				third.Close()
			}
		}
		return err == nil, err
	})
	defer third.Close()
	content, _ = next(third)
	require.Equal(t, "two", content, "a confirmed row is not streamed again")
}

// Every role that may connect may write a message of a gigabyte to the log. A stream discards it as it is received.
func TestALongMessageIsNotHeldInMemory(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	config := pool.Config()
	conn, err := wal.Connect(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close()
	slot := "long_" + config.ConnConfig.Database
	_, err = conn.CreateSlot(t.Context(), slot, false)
	require.NoError(t, err)
	for _, size := range []int{10, 200_000, 300_000, 20 << 20, 11} {
		_, err := pool.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'test', repeat('x', $1))", size)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Start(t.Context(), slot, "troupe_outbox", 0))
	var read []int
	skipped := false
	for !slices.Contains(read, 11) {
		e, err := conn.Next()
		require.NoError(t, err)
		skipped = skipped || e.Kind == wal.Skipped
		if e.Kind == wal.Message {
			read = append(read, len(e.Content))
		}
	}
	require.Equal(t, []int{10, 200_000, 11}, read)
	require.True(t, skipped)
}
