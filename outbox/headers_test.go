package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

// Headers stand in jsonb, where people can read them, unless jsonb cannot hold them.
func TestHeadersComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{Source: "s"})
	for _, c := range []struct {
		name    string
		headers []envelope.Header
		raw     bool
	}{
		{"none", nil, false},
		{"text", []envelope.Header{{Key: "a", Value: []byte("ключ 🗝 \" \\ \n")}, {Key: "b", Value: []byte{}}}, false},
		{"null", []envelope.Header{{Key: "a"}}, false},
		{"binary", []envelope.Header{{Key: "a", Value: []byte{0xff, 0xfe}}}, true},
		{"a zero byte", []envelope.Header{{Key: "a", Value: []byte{'x', 0}}}, true},
		{"repeated", []envelope.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}, true},
		{"a key that is no text", []envelope.Header{{Key: "\xff", Value: []byte("1")}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pool.Exec(t.Context(), "DELETE FROM troupe.outbox")
			require.NoError(t, err)
			write(t, pool, box, outbox.Entry{Topic: "t", Type: "T", Headers: c.headers, IdempotencyKey: "i"})
			all := rows(t, pool)
			require.Len(t, all, 1)
			require.Equal(t, c.raw, all[0].RawHeaders != nil)
			m, err := all[0].Message(outbox.Defaults{})
			require.NoError(t, err)
			require.Equal(t, c.headers, m.Extra)
			require.Equal(t, "i", m.IdempotencyKey)
			require.Equal(t, "s", m.Source)
		})
	}
}

func TestKeysThatAreNoText(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{})
	write(t, pool, box,
		outbox.Entry{Topic: "t", Type: "T", KeyBytes: []byte{0, 0xff}, Key: "loses"},
		outbox.Entry{Topic: "t", Type: "T", Key: "ключ"},
		outbox.Entry{Topic: "t", Type: "T", KeyBytes: []byte{}},
		outbox.Entry{Topic: "t", Type: "T"})
	all := rows(t, pool)
	require.Equal(t, []byte{0, 0xff}, all[0].OrderKey())
	require.Equal(t, "ключ", string(all[1].OrderKey()))
	require.NotNil(t, all[2].OrderKey(), "an empty key is a key")
	require.Empty(t, all[2].OrderKey())
	require.Nil(t, all[3].OrderKey())
	m, err := all[0].Message(outbox.Defaults{})
	require.NoError(t, err)
	require.Empty(t, m.Subject, "a subject is text")
}

func TestRowsWhoseHeadersCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		row  outbox.Row
	}{
		{"cut short", outbox.Row{RawHeaders: []byte{10, 'a'}}},
		{"no JSON", outbox.Row{Headers: []byte("{")}},
		{"too much", outbox.Row{RawHeaders: envelope.MarshalHeaders([]envelope.Header{{Key: "a", Value: make([]byte, 70_000)}})}},
	} {
		_, err := c.row.Message(outbox.Defaults{})
		require.ErrorIs(t, err, envelope.ErrHeaders, c.name)
	}
}
