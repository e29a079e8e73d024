package relay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A snapshot is a pg_snapshot. It shows which transactions had ended when it was taken.
type snapshot struct {
	text    string   // xmin:xmax:xip,…
	min     uint64   // all transactions with lower ids had ended
	max     uint64   // no transaction with this id or a higher one had ended
	running []uint64 // transactions between them that had not ended, sorted
}

func parseSnapshot(text string) (s snapshot, err error) {
	s.text = text
	bad := fmt.Errorf("no snapshot: %.60q", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, bad
	}
	if s.min, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return s, bad
	}
	if s.max, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, bad
	}
	if parts[2] != "" {
		for x := range strings.SplitSeq(parts[2], ",") {
			xid, err := strconv.ParseUint(x, 10, 64)
			if err != nil {
				return s, bad
			}
			s.running = append(s.running, xid)
		}
	}
	slices.Sort(s.running)
	return s, nil
}

// sees reports whether the rows of transaction xid are visible in the snapshot. xid must have committed.
func (s *snapshot) sees(xid uint64) bool {
	if xid < s.min {
		return true
	}
	if xid >= s.max {
		return false
	}
	_, running := slices.BinarySearch(s.running, xid)
	return !running
}

// seesLow does the same as sees for the low 32 bits of a transaction id, which the log has. The transaction must be less than 2³¹
// transactions older or newer than the snapshot.
func (s *snapshot) seesLow(xid uint32) bool {
	near := s.max + uint64(int64(int32(xid-uint32(s.max))))
	return s.text != "" && s.sees(near)
}
