package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The log names a transaction by the low 32 bits of its id, which begin at 0 again after 4,294,967,295.
func TestASnapshotSeesATransactionByItsLowBits(t *testing.T) {
	t.Parallel()
	s, err := parseSnapshot("4294967300:4294967310:4294967300,4294967305")
	require.NoError(t, err)
	for xid, seen := range map[uint32]bool{
		4294967290: true, 3: true, 4: false, 8: true, 9: false, 13: true, 14: false, 20: false, 1 << 30: false, 3 << 30: true,
	} {
		require.Equal(t, seen, s.seesLow(xid), xid)
	}
	none := snapshot{}
	require.False(t, none.seesLow(3))
}
