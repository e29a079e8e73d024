package wal_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/wal"
)

var update = flag.Bool("update", false, "capture the golden files again from a server")

// said returns captured messages, one a line in hexadecimal.
func said(t testing.TB, name string) (messages [][]byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		message, err := hex.DecodeString(strings.TrimSpace(line))
		require.NoError(t, err)
		messages = append(messages, message)
	}
	return messages
}

// tell decodes messages to readable text.
func tell(t testing.TB, messages [][]byte) string {
	t.Helper()
	var d wal.Decoder
	var out strings.Builder
	for _, m := range messages {
		e, known, err := d.Decode(m)
		require.NoError(t, err)
		switch {
		case !known:
			_, _ = fmt.Fprintf(&out, "%c skipped\n", m[0])
		case e.Kind == wal.Begin:
			_, _ = fmt.Fprintf(&out, "begin %s xid %d at %s\n", e.LSN, e.XID, e.At.Format(time.RFC3339Nano))
		case e.Kind == wal.Commit:
			_, _ = fmt.Fprintf(&out, "commit %s\n", e.LSN)
		case e.Kind == wal.Message:
			_, _ = fmt.Fprintf(&out, "message %s %q %q\n", e.LSN, e.Prefix, e.Content)
		case e.Kind == wal.Update:
			_, _ = fmt.Fprintf(&out, "update %s.%s\n", e.Relation.Namespace, e.Relation.Name)
		case e.Kind == wal.Insert:
			_, _ = fmt.Fprintf(&out, "insert %s.%s\n", e.Relation.Namespace, e.Relation.Name)
			for _, c := range e.Relation.Columns {
				format, value := e.Tuple.Next()
				if len(value) > 60 {
					value = fmt.Appendf(nil, "%d bytes of %q", len(value), value[:1])
				}
				_, _ = fmt.Fprintf(&out, "  %s (%d): %c %q\n", c.Name, c.Type, format, value)
			}
			require.Zero(t, e.Tuple.Len())
		}
	}
	return out.String()
}

// Messages captured from Postgres are decoded to the rows that were written.
func TestRealMessagesAreDecoded(t *testing.T) {
	t.Parallel()
	captured, err := filepath.Glob("testdata/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, captured)
	for _, file := range captured {
		name := strings.TrimSuffix(filepath.Base(file), ".hex")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tell(t, said(t, name))
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// A Relation message of a table with one column k of type text, and an Insert into it.
var (
	relation = []byte("R\x00\x00\x00\x01public\x00t\x00d\x00\x01\x00k\x00\x00\x00\x00\x19\xff\xff\xff\xff")
	insert   = []byte("I\x00\x00\x00\x01N\x00\x01b\x00\x00\x00\x02ab")
)

func TestAnInvalidMessageIsAnError(t *testing.T) {
	t.Parallel()
	many := append([]byte(nil), relation[:len(relation)-len("\x00\x01\x00k\x00\x00\x00\x00\x19\xff\xff\xff\xff")]...)
	many = binary.BigEndian.AppendUint16(many, 1601)
	for _, c := range []struct {
		name    string
		message string
		want    string
	}{
		{"nothing", "", "ends too soon"},
		{"a begin without its xid", "B\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00", "'B': message ends too soon"},
		{"a commit cut short", "C\x00\x00\x00\x00", "'C': message ends too soon"},
		{"a message that says it is longer than it is", "M\x00\x00\x00\x00\x00\x00\x00\x00\x01p\x00\xff\xff\xff\xff", "'M': message ends too soon"},
		{"a prefix without an end", "M\x00\x00\x00\x00\x00\x00\x00\x00\x01" + strings.Repeat("p", 1000), "'M': message ends too soon"},
		{"a relation with a name of no end", "R\x00\x00\x00\x01" + strings.Repeat("n", 1000) + "\x00", "'R': message ends too soon"},
		{"a relation of too many columns", string(many), "'R': 1601 columns"},
		{"a relation that lacks its columns", string(relation[:len(relation)-3]), "'R': message ends too soon"},
		{"a row of a table without a description", "I\x00\x00\x00\x02N\x00\x01n", "relation 2 was not described"},
		{"a row without a relation", "I\x00", "'I': message ends too soon"},
		{"no new tuple", "I\x00\x00\x00\x01K\x00\x01n", "no new tuple"},
		{"more values than columns", "I\x00\x00\x00\x01N\x00\x02nn", "2 values for 1 columns of t"},
		{"fewer values than columns", "I\x00\x00\x00\x01N\x00\x00", "0 values for 1 columns of t"},
		{"a value longer than the message", "I\x00\x00\x00\x01N\x00\x01b\x00\x00\x00\x03ab", "'I': message ends too soon"},
		{"a value of four gigabytes", "I\x00\x00\x00\x01N\x00\x01b\xff\xff\xff\xffab", "'I': message ends too soon"},
		{"an unknown format", "I\x00\x00\x00\x01N\x00\x01x", `value format 'x'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d wal.Decoder
			_, known, err := d.Decode(relation)
			require.NoError(t, err)
			require.False(t, known)
			_, known, err = d.Decode([]byte(c.message))
			require.ErrorContains(t, err, c.want)
			require.False(t, known)
			_, known, err = d.Decode(insert) // the decoder still works
			require.NoError(t, err)
			require.True(t, known)
		})
	}
}

func TestMessagesOfOtherTablesAreSkipped(t *testing.T) {
	t.Parallel()
	var d wal.Decoder
	for _, kind := range "UDTOYSEAPKrb?" {
		_, known, err := d.Decode([]byte(string(kind) + "whatever"))
		require.NoError(t, err)
		require.False(t, known, "%c", kind)
	}
}

// A table that changes is described again: rows are decoded by the last description before them.
func TestARowIsReadByTheLastDescription(t *testing.T) {
	t.Parallel()
	var d wal.Decoder
	_, _, err := d.Decode(relation)
	require.NoError(t, err)
	before, _, err := d.Decode(insert)
	require.NoError(t, err)
	_, _, err = d.Decode(bytes.Replace(relation, []byte("t\x00d"), []byte("u\x00d"), 1))
	require.NoError(t, err)
	after, _, err := d.Decode(insert)
	require.NoError(t, err)
	require.Equal(t, "t", before.Relation.Name)
	require.Equal(t, "u", after.Relation.Name)
}

func TestAnLSNIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"} {
		l, err := wal.ParseLSN(text)
		require.NoError(t, err)
		require.Equal(t, text, l.String())
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "100000000/0", "0/100000000", "-1/0", "g/0", "1/2/3"} {
		_, err := wal.ParseLSN(text)
		require.Error(t, err, text)
	}
}

// For any input, Decode neither panics nor returns values from outside the message.
func FuzzDecode(f *testing.F) {
	captured, err := filepath.Glob("testdata/*.hex")
	require.NoError(f, err)
	for _, file := range captured {
		for _, m := range said(f, strings.TrimSuffix(filepath.Base(file), ".hex")) {
			f.Add(m, m)
		}
	}
	f.Add(relation, insert)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var d wal.Decoder
		for _, m := range [][]byte{relation, first, second} {
			e, known, err := d.Decode(m)
			if err != nil || !known {
				continue
			}
			size := len(e.Content)
			if e.Kind == wal.Insert {
				require.Len(t, e.Relation.Columns, e.Tuple.Len())
			}
			for e.Tuple.Len() > 0 {
				_, value := e.Tuple.Next()
				size += len(value)
			}
			require.LessOrEqual(t, size, len(m))
		}
	})
}

// BenchmarkInsert decodes a row of an outbox and iterates over its values. It must not allocate.
func BenchmarkInsert(b *testing.B) {
	var d wal.Decoder
	var row []byte
	for _, m := range said(b, "outbox") {
		if _, _, err := d.Decode(m); err != nil {
			b.Fatal(err)
		}
		if m[0] == 'I' && row == nil {
			row = m
		}
	}
	b.SetBytes(int64(len(row)))
	b.ReportAllocs()
	for b.Loop() {
		walk(b, &d, row)
	}
}

func walk(t testing.TB, d *wal.Decoder, row []byte) {
	e, known, err := d.Decode(row)
	if err != nil || !known {
		t.Fatal(err)
	}
	for e.Tuple.Len() > 0 {
		e.Tuple.Next()
	}
}

func TestARowIsDecodedWithoutAllocating(t *testing.T) {
	var d wal.Decoder
	var row []byte
	for _, m := range said(t, "outbox") {
		_, _, err := d.Decode(m)
		require.NoError(t, err)
		if m[0] == 'I' {
			row = m
		}
	}
	require.NotNil(t, row)
	require.Zero(t, testing.AllocsPerRun(100, func() { walk(t, &d, row) }))
}
