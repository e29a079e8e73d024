package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/testkit"
)

func TestTraceShowsAnOrderOfADemoThatWasKept(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "t-") // not the command's, which the demo's folder outlives; short, for Postgres' sockets
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	demo := finish(t, command(t, []string{"TMPDIR=" + dir}, "demo", "--limit", "3", "--fail", "shipping=100%", "--keep", "--output", "json"))
	folder := demo.result(t).Folder
	require.Contains(t, demo.stderr, "troupe trace cdnow-00001 --demo "+folder)

	o := finish(t, command(t, nil, "trace", "cdnow-00001", "--demo", folder, "--output", "json"))
	require.Equal(t, 0, o.status, o.stderr)
	var got timeline.Timeline
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &got))
	require.Len(t, got.Entries, 11, "three hops forward, two back, and the customer is told")
	require.Empty(t, got.Findings)
	require.Empty(t, got.Unseen)

	o = finish(t, command(t, nil, "trace", got.Entries[10].ID, "--demo", folder, "--payload"))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, "a message of the flow "+got.Entries[0].ID+": 11 entries")
	require.Regexp(t, `(?m)^ 6 .* order-\w+\.shipping +event +ShippingRefused +failure +#5 +[0-9a-f-]{36}$`, o.stdout)
	require.Contains(t, o.stdout, "payload: ")
	require.Contains(t, o.stdout, "\nNothing is missing: every command is answered, and every event was read.\n")

	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.Mkdir(other, 0o700))
	o = finish(t, command(t, nil, "trace", "o-1", "--demo", other))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stderr, "not the folder of a demo with --keep")
}

func TestTraceNamesWhatItCannotSee(t *testing.T) {
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1', E'shop.\x1b[31mCharge', '{}')`)
	require.NoError(t, err)
	databases := "TROUPE_DATABASES=order=" + testkit.DatabaseURL(t, pool) + " payment=postgres://someone:hidden@127.0.0.1:1/payment"
	o := finish(t, command(t, []string{databases}, "trace", "o-1"))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, "in the outbox of order: pending")
	require.Contains(t, o.stdout, "\nwaits for:\n  #1 \uFFFD[31mCharge not published yet: row 1 of the outbox of order")
	require.Contains(t, o.stdout, "\nnot seen:\n  database payment: ")
	require.NotContains(t, o.stdout, "hidden")
	require.NotContains(t, o.stdout, "\x1b")

	o = finish(t, command(t, nil, "trace", "o-1", "--brokers", "127.0.0.1:1", "--flow", "order", "--timeout", "2s"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stdout, "brokers 127.0.0.1:1")
	require.Contains(t, o.stderr, "no server could be read")

	o = finish(t, command(t, []string{databases}, "trace", "o-2", "--database", "order="+testkit.DatabaseURL(t, pool)))
	require.Equal(t, 0, o.status)
	require.Contains(t, o.stdout, "Nothing was found.")
	require.NotContains(t, o.stdout, "not seen", "flags win over the environment")
}

func TestATimelineIsPrintedForPeople(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b bytes.Buffer
	require.NoError(t, tracePrinter{w: &b}.print(&timeline.Timeline{
		Subject: "o-1", Since: at, Records: 5, Partitions: 2,
		Entries: []timeline.Entry{
			{Kind: timeline.Command, At: at, Hop: "order.payment", Type: "shop.Charge", ID: "a", Cause: -1, Record: &timeline.Record{Repeats: 2}},
			{Kind: timeline.DeadLetter, At: at.Add(90 * time.Second), Hop: "order.payment", Type: "shop.Charge", ID: "a", Cause: 0, After: 90 * time.Second,
				DeadLetter: &timeline.Letter{Status: "redriven", Class: "timeout", Attempts: 8, Error: "too\nslow"}},
			{Kind: timeline.Command, At: at.Add(2 * time.Minute), Hop: "order.payment", Type: "shop.Charge", ID: "a", Cause: -1, Redrive: 1},
			{Kind: timeline.Command, At: at.Add(3 * time.Minute), Hop: "order.order", Type: "troupe.Deadline", ID: "b", Cause: -1,
				Deadline: "expect.shipped", Expects: []string{"OrderShipped of order.shipping.events"}},
		},
	}))
	require.Equal(t, `o-1: 4 entries; 5 records of 2 partitions read, from 2026-01-02 03:04:05 UTC on

#  TIME (UTC)               AFTER  HOP            KIND         TYPE      OUTCOME  BY  ID
1  2026-01-02 03:04:05.000         order.payment  command      Charge                 a
     2 more records with the same id: duplicates
2  2026-01-02 03:05:35.000  1m30s  order.payment  dead letter  Charge             #1  a
     redriven: timeout after attempt 8: too�slow
3  2026-01-02 03:06:05.000         order.payment  command      Charge                 a
     redrive 1
4  2026-01-02 03:07:05.000         order.order    command      Deadline               b
     the deadline expect.shipped: had not come in time: OrderShipped of order.shipping.events

Nothing is missing: every command is answered, and every event was read.
`, b.String())
}

func TestTraceSaysWhatIsWrongWithItsFlags(t *testing.T) {
	for want, args := range map[string]string{
		"accepts 1 arg(s)":                      "",
		"no server is given":                    "o-1",
		"want --flow as well":                   "o-1 --brokers 127.0.0.1:1",
		"want --brokers as well":                "o-1 --database a=postgres://127.0.0.1:1/a --group g",
		"want more than none":                   "o-1 --brokers 127.0.0.1:1 --flow order --since 0s",
		"want name=URL":                         "o-1 --database postgres://a:hidden@127.0.0.1:1/a?b=c",
		"--database a: not a connection string": "o-1 --database a=postgres://a:hidden@127.0.0.1:none/a",
		"--registry":                            "o-1 --brokers 127.0.0.1:1 --flow order --registry here",
	} {
		o := finish(t, command(t, []string{"DATABASE_URL=", "KAFKA_BROKERS="}, append([]string{"trace"}, strings.Fields(args)...)...))
		require.Equal(t, 2, o.status, fmt.Sprint(args, o))
		require.Contains(t, o.stderr, want)
		require.NotContains(t, o.stderr, "hidden")
	}
}
