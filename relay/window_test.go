package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/wal"
)

// The rows of a window are published even if the stream has ended.
func TestARowThatCannotBeReadIsNotInTheWindow(t *testing.T) {
	t.Parallel()
	var d wal.Decoder
	_, _, err := d.Decode([]byte("R\x00\x00\x00\x01troupe\x00outbox\x00d\x00\x01\x00id\x00\x00\x00\x0b\x86\xff\xff\xff\xff"))
	require.NoError(t, err)
	e, known, err := d.Decode([]byte("I\x00\x00\x00\x01N\x00\x01b\x00\x00\x00\x03abc"))
	require.NoError(t, err)
	require.True(t, known)

	w := &window{}
	w.push(item{})
	require.EqualError(t, w.add(layout{id}, e.Tuple, words{}), "an id of 3 bytes")
	require.Len(t, w.items, 1)
}
