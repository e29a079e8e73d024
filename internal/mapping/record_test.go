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
//	DEBEZIUM=…/debezium-server/lib JAVA=…/bin/java go test -tags record -run TestRecord ./internal/mapping
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

const recordedTable = `
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE recorded (
    id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255), type varchar(255) NOT NULL, payload jsonb,
    words text, bytes bytea,
    a int2, b int4, c int8, d bool, e numeric(10,2), f float8, g date, h time, i timestamptz, j timestamp, k timestamp(3),
    l json, m mood, n uuid, q char(4), s timestamptz(2), u real, v time(3), w varchar, x int4 NOT NULL DEFAULT 5
)`

const recordedRows = `
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'order', '1', 'OrderCreated', '{"id": 1, "total": 39.98, "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}], "at": "2019-01-31T12:13:01"}',
     '{"b": "é", "a": true}', '\x00ff10', -32768, 2147483647, -9223372036854775808, true, 12345678.90, -0.1, '1969-12-31', '12:13:14.000015',
     '2019-03-24 20:52:59.1234+02', '2019-03-24 20:52:59.123456', '2019-03-24 20:52:59.1239', '{"x":  1}', 'glad',
     '59a42efd-b015-44a9-9dde-cb36d9002425', 'ab', '2019-03-24 20:52:59.999+00', 0.5, '00:00:01.5', E'q"\\\n\té');
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b90', 'User', '10711fa5', 'UserCreated', '{"a": null, "b": [], "c": {"d": null, "e": ""}, "n": [null, 2, 3]}',
     '', '\x', 0, 0, 0, false, 0.00, 0, '2000-02-29', '00:00:00', '1969-12-31 23:59:59.5+00', '1960-01-01', '1969-12-31 23:59:59.999', '[]', 'sad',
     '59a42efd-b015-44a9-9dde-cb36d9002425', '', '2024-02-29 00:00:00+00', -1.5, '23:59:59.999', '');
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b91', 'User', 'k', 'UserDeleted', NULL, NULL, NULL, 7, 7);
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b92', 'a-b', 'k', 'T', '"text"', '  ', '\x20', 1, 1);
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b93', 'x12', '', 'T', '{}', '{"not JSON', '\x7b7d', 1, 1);
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b94', 'x13', 'k', 'T', '{"l": [{"a": 1}, {"b": 2}]}', '[1, 2]', '\x01', 1, 1);
INSERT INTO recorded VALUES ('406c07f3-26f0-4eea-a50c-109940064b95', 'x14', 'k', 'T', '{"l": [1, 2.5]}', '{"n": 12345678901234567890123}', '\x01', 1, 1)`
