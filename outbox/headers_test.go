package outbox_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

// Headers are stored as jsonb, which operators can read, unless jsonb cannot hold them.
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
			m, err := all[0].Message(outboxrow.Defaults{})
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
	m, err := all[0].Message(outboxrow.Defaults{})
	require.NoError(t, err)
	require.Empty(t, m.Subject, "a subject is text")
}

func TestRowsWhoseHeadersCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		row  outboxrow.Row
	}{
		{"cut short", outboxrow.Row{RawHeaders: []byte{10, 'a'}}},
		{"no JSON", outboxrow.Row{Headers: []byte("{")}},
		{"too much", outboxrow.Row{RawHeaders: envelope.MarshalHeaders([]envelope.Header{{Key: "a", Value: make([]byte, 70_000)}})}},
	} {
		_, err := c.row.Message(outboxrow.Defaults{})
		require.ErrorIs(t, err, envelope.ErrHeaders, c.name)
	}
}

// TestAnIDThatIsNoUUIDStandsInRawHeaders checks that another program's message keeps its identity when it is sent again.
func TestAnIDThatIsNoUUIDStandsInRawHeaders(t *testing.T) {
	t.Parallel()
	own := uuid.MustParse("0191f6a8-0000-7000-8000-000000000001")
	for given, want := range map[string]string{
		"charge-17":                            "charge-17",
		"0191F6A8-0000-7000-8000-00000000000A": "0191F6A8-0000-7000-8000-00000000000A", // normalised: lower case
		"0191f6a8-0000-7000-8000-00000000000a": own.String(),
		"":                                     own.String(),
	} {
		hs := []envelope.Header{{Key: ce.HeaderID, Value: []byte(given)}}
		r := outboxrow.Row{ID: own, Topic: "t", Type: "T", RawHeaders: envelope.MarshalHeaders(hs)}
		m, err := r.Message(outboxrow.Defaults{})
		require.NoError(t, err)
		require.Equal(t, want, m.ID)
	}
	r := outboxrow.Row{ID: own, Topic: "t", Type: "T", Headers: []byte(`{"ce_id":"charge-17"}`)}
	m, err := r.Message(outboxrow.Defaults{})
	require.NoError(t, err)
	require.Equal(t, own.String(), m.ID, "a plain insert names its message by the column")
}

// Entries of all kinds can be written by one statement.
func TestHeadersOfManyEntriesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{})
	kinds := [][]envelope.Header{
		nil, {{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}, {{Key: "b"}}, {{Key: "c", Value: []byte(`"\`)}},
	}
	var entries []outbox.Entry
	for i, headers := range kinds {
		e := outbox.Entry{Topic: "t", Type: "T", Headers: headers}
		if i%2 == 0 {
			e.Payload = []byte{} // for the others the payload is null: a tombstone
		}
		entries = append(entries, e)
	}
	write(t, pool, box, entries...)
	all := rows(t, pool)
	require.Len(t, all, len(kinds))
	for i, row := range all {
		m, err := row.Message(outboxrow.Defaults{})
		require.NoError(t, err)
		require.Equal(t, kinds[i], m.Extra)
		require.Equal(t, i%2 == 0, row.Payload != nil)
	}
}
