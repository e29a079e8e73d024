package main

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAMedianIsOfEachFigureAndCountsAreSums(t *testing.T) {
	m := drainTable.Median([]drained{
		{rows: 10, seconds: 3, cpu: 1, peakMB: 50, lost: 1, doubled: 2},
		{rows: 10, seconds: 1, cpu: 3, peakMB: 70, doubled: 3},
		{rows: 10, seconds: 2, cpu: 2, peakMB: 60, disorder: 4},
	})
	require.Equal(t, drained{rows: 10, seconds: 2, cpu: 2, peakMB: 60, lost: 1, doubled: 5, disorder: 4}, m)
	require.InDelta(t, 5, m.rate(), 0)
	require.InDelta(t, 200_000, m.million(m.cpu), 0)
}

func TestARowIsKnownByItsID(t *testing.T) {
	for _, i := range []int{0, 1, 1_000_000, math.MaxUint32} {
		id := rowID(i)
		require.EqualValues(t, 8, id.Version())
		for _, header := range []string{id.String(), `"` + id.String() + `"`} { // Debezium's headers are JSON
			got, err := rowOf([]byte(header))
			require.NoError(t, err)
			require.Equal(t, i, got)
		}
	}
	_, err := rowOf([]byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
	require.ErrorContains(t, err, "none of this benchmark's")
	_, err = rowOf([]byte("1"))
	require.ErrorContains(t, err, `id "1"`)
}

func TestAPayloadIsTheSameJSONEachTime(t *testing.T) {
	for i := range 1000 {
		p := payload(i)
		require.True(t, json.Valid(p), "%s", p)
		require.Equal(t, p, payload(i))
		require.NotEqual(t, p, payload(i+1))
		require.InDelta(t, 600, len(p), 60)
	}
}

func TestAKeyHasOneTopic(t *testing.T) {
	l := load{rows: 1000, keys: 30, topics: 7}
	of := make(map[string]int)
	topics := make(map[int]bool)
	for i := range l.rows {
		if topic, known := of[l.key(i)]; known {
			require.Equal(t, topic, l.topic(i))
		}
		of[l.key(i)] = l.topic(i)
		topics[l.topic(i)] = true
	}
	require.Len(t, of, 30)
	require.Len(t, topics, 7)
}

func TestATallyTellsWhatIsLostDoubledAndOutOfOrder(t *testing.T) {
	at := time.Unix(100, 0)
	l := load{rows: 6, keys: 2, topics: 1}
	for name, c := range map[string]struct {
		came                    []int
		lost, doubled, disorder int
	}{
		"each once":                       {came: []int{0, 1, 2, 3, 4, 5}},
		"keys may pass one another":       {came: []int{1, 3, 5, 0, 2, 4}},
		"nothing":                         {lost: 6},
		"one not":                         {came: []int{0, 1, 2, 3, 5}, lost: 1},
		"a later one of the key first":    {came: []int{2, 0, 1, 3, 4, 5}, disorder: 1},
		"a second copy is never in order": {came: []int{0, 1, 2, 0, 2, 3, 4, 5}, doubled: 2},
	} {
		got := newTally(l)
		for n, i := range c.came {
			_, err := got.add(i, at.Add(time.Duration(n)*time.Second))
			require.NoError(t, err)
		}
		require.Equal(t, []int{c.lost, c.doubled, c.disorder}, []int{got.lost(), got.doubled, got.disordered}, name)
		if len(c.came) > 0 {
			require.Equal(t, time.Duration(len(c.came)-1)*time.Second, got.last.Sub(got.first), name)
		}
	}
	_, err := newTally(l).add(6, at)
	require.ErrorContains(t, err, "row 6 of 6")
	_, _, err = newTally(l).record(&kgo.Record{Topic: "t"})
	require.ErrorContains(t, err, "a record of t without an id")
	i, isNew, err := newTally(l).record(&kgo.Record{Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(rowID(3).String())}}})
	require.NoError(t, err)
	require.True(t, isNew)
	require.Equal(t, 3, i)
}

func TestStatementsOfOneDatabaseAreCounted(t *testing.T) {
	const log = `2026-11-21 19:00:00.001 UTC [100] bench_relay_1 LOG:  statement: SELECT 1
2026-11-21 19:00:00.002 UTC [100] bench_relay_1 LOG:  execute <unnamed>: SELECT $1
2026-11-21 19:00:00.002 UTC [100] bench_relay_1 DETAIL:  parameters: $1 = 'LOG:  statement: '
2026-11-21 19:00:00.003 UTC [100] bench_relay_1 LOG:  execute stmtcache_1: SELECT 1,
	2
2026-11-21 19:00:00.004 UTC [101] bench_relay_10 LOG:  statement: SELECT 1
2026-11-21 19:00:00.005 UTC [100] bench_relay_1 LOG:  starting logical decoding for slot "s"
2026-11-21 19:00:00.006 UTC [90]  LOG:  checkpoint complete
`
	n, err := countStatements(strings.NewReader(log), "bench_relay_1")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = countStatements(strings.NewReader(log), `bench_relay_\d+`)
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

func TestAHelpTextSaysWhatAFlagTakes(t *testing.T) {
	const usage = `Flags:
      --source auto|poll             auto|wal: how rows are found
      --delivery at-least-once       exactly-once
`
	require.True(t, offers(usage, "--source", "poll"))
	require.False(t, offers(usage, "--source", "wal"))
	require.False(t, offers(usage, "--delivery", "exactly-once"))
	require.False(t, offers(usage, "--other", "poll"))
}

func TestJavaSaysItsVersion(t *testing.T) {
	for said, want := range map[string]int{
		`openjdk version "25.0.1" 2025-10-21`:                21,
		`openjdk version "17.0.15" 2025-04-15`:               17,
		"Picked up X\njava version \"21\" 2023-09-19 LTS":    21,
		`java version "1.8.0_202"`:                           1,
		"The operation couldn’t be completed. No Java here.": 0,
	} {
		if want == 21 {
			require.GreaterOrEqual(t, javaVersion(said), leastJava, said)
			continue
		}
		require.Equal(t, want, javaVersion(said), said)
	}
}

func TestATransportIsSocketOrTCP(t *testing.T) {
	var tcp []bool
	require.NoError(t, parseTransports("socket,tcp", &tcp))
	require.Equal(t, []bool{false, true}, tcp)
	require.ErrorContains(t, parseTransports("pipe", &tcp), `--transports: "pipe" is none of socket, tcp`)
}

// Each Debezium in the comparison has the table and the tuning of its name.
func TestEachDebeziumHasItsProperties(t *testing.T) {
	files, err := properties.ReadDir("debezium")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, f := range files {
		text, err := os.ReadFile("debezium/" + f.Name())
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			name, _, set := strings.Cut(line, "=")
			require.True(t, strings.HasPrefix(line, "#") || set, "%s: %s", f.Name(), line)
			if f.Name() != "base.properties" && set {
				base, err := properties.ReadFile("debezium/base.properties")
				require.NoError(t, err)
				require.NotContains(t, string(base), name+"=", "%s: set twice", f.Name())
			}
		}
	}
}
