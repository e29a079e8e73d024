package envelope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
)

func TestTheIdentityIsTheIDWithItsSource(t *testing.T) {
	t.Parallel()
	identity := func(source, id string) string { return envelope.Message{Source: source, ID: id}.Identity() }
	require.Regexp(t, "^1~[0-9a-f]{16}$", identity("billing", "1"))
	require.Regexp(t, "^1~[0-9a-f]{16}$", identity("", "1"))

	seen := make(map[string]string)
	for _, m := range []envelope.Message{
		{Source: "billing", ID: "1"}, {Source: "billing", ID: "2"}, {Source: "shop", ID: "1"}, {ID: "1"}, {Source: "1"},
		{Source: "billing1"}, {Source: "billin", ID: "g1"}, {Source: "billing1", ID: ""},
		{ID: identity("billing", "1")}, {Source: "billing", ID: identity("billing", "1")}, // the identity of one message as the id of another
		{Source: "x", ID: "1~" + strings.Repeat("0", 16)}, {Source: "x", ID: "~"},
		{Source: "x", ID: "6ba7b810-9dad-51d1-80b4-00c04fd430c8"}, {Source: "y", ID: "6ba7b810-9dad-51d1-80b4-00c04fd430c8"}, // UUIDs made from a name
		{Source: "x", ID: "00000000-0000-0000-0000-000000000001"}, {Source: "y", ID: "00000000-0000-0000-0000-000000000001"}, // counted up
	} {
		text := m.Source + "\x00" + m.ID
		if m.ID == "" {
			require.Empty(t, m.Identity())
			continue
		}
		require.NotContains(t, seen, m.Identity(), "%q and %q", seen[m.Identity()], text)
		seen[m.Identity()] = text
	}
	require.Equal(t, "17~dcb544b0031acf42", identity("billing", "17"), "inboxes keep it")
}

func TestAUniqueUUIDIsItsOwnIdentity(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		envelope.NewID(), "01A1FE33-DE2C-72A0-83C8-28B2D6703402", "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		"9d3f0f2c-6ad5-4d58-9a6e-2f3a6c1b1f10", "1ec9414c-232a-6b00-b3c8-9e6bdeced846",
	} {
		require.Equal(t, id, envelope.Message{Source: "billing", ID: id}.Identity())
	}
	for _, id := range []string{
		"{9d3f0f2c-6ad5-4d58-9a6e-2f3a6c1b1f10}", "urn:uuid:9d3f0f2c-6ad5-4d58-9a6e-2f3a6c1b1f10", "9d3f0f2c6ad54d589a6e2f3a6c1b1f10",
		"9d3f0f2c-6ad5-3d58-9a6e-2f3a6c1b1f10", "9d3f0f2c-6ad5-5d58-9a6e-2f3a6c1b1f10", "9d3f0f2c-6ad5-8d58-9a6e-2f3a6c1b1f10",
	} {
		require.NotEqual(t, id, envelope.Message{Source: "billing", ID: id}.Identity())
	}
}

// TestEmissionsOfTwoSourcesHaveTheirOwnIDs: the same handler, id and millisecond.
func TestEmissionsOfTwoSourcesHaveTheirOwnIDs(t *testing.T) {
	t.Parallel()
	emitted := func(source string) string {
		var m envelope.Message
		(&envelope.Cause{Message: envelope.Message{Source: source, ID: "1"}, Handler: "payment/Charge"}).Apply(&m)
		return m.ID
	}
	require.Equal(t, emitted("billing"), emitted("billing"))
	require.NotEqual(t, emitted("billing"), emitted("shop"))
}
