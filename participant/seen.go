package participant

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// lowMark is an offset of a partition up to which every message has ended, that offset included.
type lowMark struct {
	topicID uuid.UUID
	offset  int64
	epoch   int32 // of the leader that wrote the record at offset; -1: not known
	at      int64 // the record's timestamp, in Unix milliseconds
}

// seen holds the offsets that had ended when the lease was taken: all up to a watermark, and some above it. Only forgetEnd changes
// it, before the first record.
//
// A record at or below the watermark with a later leader epoch than the watermark's own is new: the log was cut, and this record was written in place
// of an earlier one.
type seen struct {
	topicID   uuid.UUID
	watermark struct {
		offset int64
		epoch  int32
	}
	above map[uuid.UUID][]offsetRange
}

// offsetRange is a range of offsets that have ended, both ends included.
type offsetRange struct {
	low, high int64
	epoch     int32
}

func (s *seen) has(topicID uuid.UUID, offset int64, epoch int32) bool {
	if topicID == s.topicID && offset <= s.watermark.offset && epoch <= s.watermark.epoch {
		return true
	}
	runs := s.above[topicID]
	i, found := slices.BinarySearchFunc(runs, offset, func(r offsetRange, offset int64) int { return cmp.Compare(r.low, offset) })
	if !found {
		i--
	}
	return i >= 0 && offset <= runs[i].high && epoch <= runs[i].epoch
}

// last returns the highest offset of the watermark's topic that has ended.
func (s *seen) last() int64 {
	if runs := s.above[s.topicID]; len(runs) > 0 {
		return max(s.watermark.offset, runs[len(runs)-1].high)
	}
	return s.watermark.offset
}

// load reads the offsets above the watermark that have ended.
func (s *seen) load(ctx context.Context, tx pgx.Tx, lease int32) error {
	rows, err := tx.Query(ctx, loadOffsets, lease)
	if err != nil {
		return err
	}
	s.above = make(map[uuid.UUID][]offsetRange)
	var topicID uuid.UUID
	var offsets []int64
	var r offsetRange
	_, err = pgx.ForEachRow(rows, []any{&topicID, &r.low, &r.high, &offsets, &r.epoch}, func() error {
		if offsets == nil {
			s.above[topicID] = append(s.above[topicID], r)
		}
		for _, o := range offsets {
			s.above[topicID] = append(s.above[topicID], offsetRange{o, o, r.epoch})
		}
		return nil
	})
	for id, runs := range s.above {
		s.above[id] = merge(sorted(runs))
	}
	return err
}

func sorted(runs []offsetRange) []offsetRange {
	slices.SortFunc(runs, func(a, b offsetRange) int { return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high)) })
	return runs
}

// merge joins adjacent ranges of one leader epoch, so that one binary search finds an offset. runs must be sorted. If ranges of two epochs overlap,
// the log was cut at the low end of the range of the later epoch. From there on, offsets of the earlier epoch are dropped.
func merge(runs []offsetRange) []offsetRange {
	merged := runs[:0]
	for _, r := range runs {
		last := len(merged) - 1
		switch {
		case last < 0 || r.low > merged[last].high+1:
			merged = append(merged, r)
		case r.epoch == merged[last].epoch:
			merged[last].high = max(merged[last].high, r.high)
		case r.low > merged[last].high:
			merged = append(merged, r)
		case r.epoch > merged[last].epoch:
			if merged[last].high = r.low - 1; merged[last].high < merged[last].low {
				merged = merged[:last]
			}
			merged = append(merged, r)
		}
	}
	return merged
}

// span returns the offsets of ms in the form of a row of troupe.inbox_offsets. offsets is nil if ms has each offset from low to high. ms need not be
// sorted.
func span(ms []*message) (low, high int64, offsets []int64, epoch int32) {
	low, high, epoch = ms[0].offset, ms[0].offset, ms[0].epoch
	for _, m := range ms {
		low, high, epoch = min(low, m.offset), max(high, m.offset), max(epoch, m.epoch)
	}
	if high-low+1 == int64(len(ms)) {
		return low, high, nil, epoch
	}
	offsets = make([]int64, len(ms))
	for i, m := range ms {
		offsets[i] = m.offset
	}
	return low, high, offsets, epoch
}
