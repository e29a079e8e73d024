//go:build record

package mapping_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestRecord asks Debezium itself, and writes its answers to testdata/debezium.json:
//
//	DEBEZIUM=…/debezium-server/lib JAVA=…/bin/java go test -tags record -run TestRecord ./relay/mapping
//
// Java is 21 or newer; DEBEZIUM is the folder of jars of a Debezium Server.
func TestRecord(t *testing.T) {
	pool := testkit.Database(t)
	ctx := t.Context()
	var slot string
	require.NoError(t, pool.QueryRow(ctx, "SELECT 'record_' || substr(md5(current_database()), 1, 12)").Scan(&slot))
	_, err := pool.Exec(ctx, recordedTable)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "CREATE PUBLICATION recorded FOR TABLE recorded WITH (publish = 'insert')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "SELECT pg_drop_replication_slot($1)", slot)
		require.NoError(t, err)
	})
	_, err = pool.Exec(ctx, recordedRows)
	require.NoError(t, err)

	var golden recording
	golden.Columns = catalog(t, pool, "recorded")
	rows, err := pool.Query(ctx, "SELECT * FROM recorded", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for rows.Next() {
		row := make([]*string, len(golden.Columns))
		for i, raw := range rows.RawValues() {
			if raw != nil {
				text := string(raw)
				row[i] = &text
			}
		}
		golden.Rows = append(golden.Rows, row)
	}
	require.NoError(t, rows.Err())

	dir := t.TempDir()
	conn := pool.Config().ConnConfig
	write := func(name string, body any) string {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	engine := write("engine.json", map[string]string{
		"name": "recorder", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"database.hostname": "127.0.0.1", "database.port": strconv.Itoa(int(conn.Port)), "database.user": conn.User,
		"database.password": conn.Password, "database.dbname": conn.Database, "topic.prefix": "recorder", "slot.name": slot,
		"slot.drop.on.stop": "false", "publication.name": "recorded", "publication.autocreate.mode": "disabled",
		"table.include.list": "public.recorded", "snapshot.mode": "no_data", "extended.headers.enabled": "false",
		"offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
	})
	cases := write("cases.json", recordedCases)
	out := filepath.Join(dir, "out.json")
	cmd := exec.CommandContext(ctx, os.Getenv("JAVA"), "-Xmx512m", "-cp", os.Getenv("DEBEZIUM")+"/*", "testdata/Recorder.java", engine, cases,
		strconv.Itoa(len(golden.Rows)), out)
	log, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &golden.Cases))
	text, err = json.MarshalIndent(golden, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("testdata/debezium.json", append(text, '\n'), 0o644))
}
