package schemas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Limits on one payload. The libraries' own limits are not sufficient. goavro allocates memory for as many items as a count
// in the payload says, up to 34 GB for five bytes, and follows a recursive schema until the stack is full (4 MB of payload
// suffice), which recover cannot handle. twmb/avro compares each array with its bytes, but lets every inner array have 4,096
// items that take no bytes (3 kB became 66 MB), and moves the items that it has of an array at every further block, so that
// time and garbage grow with the square of the number of blocks.
//
// Memory that these limits still allow: a struct per item of an array, and in ToJSON a map per record, up to 800 bytes per
// byte of payload if a schema has arrays of records with a single boolean.
const (
	maxDepth  = 200     // nesting of records, arrays, maps and unions
	maxValues = 1 << 20 // values in total, including each record, array, map and union
	maxEmpty  = 4 << 10 // items that take no bytes: nulls, empty records, fixed of size 0

	// Items that precede a block, summed over the blocks: the limit per byte of payload, and the lowest limit. A megabyte in
	// blocks of 64 kB, as Java writes it, needs 8 per byte.
	movesPerByte, leastMoves = 16, 1 << 20
)

var errShort = errors.New("cut short")

// check walks the Avro binary of one value without decoding it. It accepts the value if the following bytes can hold every
// length and count, the limits are kept, strings are UTF-8, and no bytes are left over.
func (s *shape) check(b []byte) error {
	w := walk{rest: b, values: maxValues, empty: maxEmpty, moves: max(leastMoves, movesPerByte*int64(len(b)))}
	if err := w.value(s, 0); err != nil {
		return fmt.Errorf("byte %d of %d: %w", len(b)-len(w.rest), len(b), err)
	}
	if len(w.rest) > 0 {
		return fmt.Errorf("%d bytes are left over", len(w.rest))
	}
	return nil
}

type walk struct {
	rest                 []byte
	values, empty, moves int64 // remaining limits
}

func (w *walk) value(s *shape, depth int) error {
	if w.values--; w.values < 0 {
		return fmt.Errorf("more than %d values", maxValues)
	}
	switch s.kind {
	case kindNull:
		return nil
	case kindInt:
		_, err := w.int()
		return err
	case kindLong:
		_, err := w.long()
		return err
	case kindFixed:
		return w.skip(int64(s.size))
	case kindBytes:
		_, err := w.bytes()
		return err
	case kindString:
		return w.text()
	case kindEnum:
		_, err := w.index(s.size)
		return err
	}
	if depth++; depth > maxDepth {
		return fmt.Errorf("more than %d levels deep", maxDepth)
	}
	switch s.kind {
	case kindRecord:
		for _, f := range s.parts {
			if err := w.value(f, depth); err != nil {
				return err
			}
		}
		return nil
	case kindUnion:
		i, err := w.index(len(s.parts))
		if err != nil {
			return err
		}
		return w.value(s.parts[i], depth)
	default:
		return w.blocks(s, depth)
	}
}

// blocks walks an array or a map: blocks of items, up to an empty block. A negative count is followed by the block's size in
// bytes, which readers may use to skip it, so it must be correct.
func (w *walk) blocks(s *shape, depth int) error {
	item := s.parts[0]
	least := item.least
	if s.kind == kindMap {
		least++ // a key
	}
	for before := int64(0); ; {
		count, err := w.long()
		if err != nil || count == 0 {
			return err
		}
		if w.moves -= before; w.moves < 0 {
			return errors.New("cut into too many blocks")
		}
		end := -1
		if count < 0 {
			count = -count // the lowest number stays negative, and is refused as too many
			size, err := w.long()
			if err != nil {
				return err
			}
			if size < 0 || size > int64(len(w.rest)) {
				return fmt.Errorf("block of %d bytes: %w", size, errShort)
			}
			end = len(w.rest) - int(size)
		}
		if err := w.room(count, least); err != nil {
			return err
		}
		before += count
		for range count {
			if s.kind == kindMap {
				if err := w.text(); err != nil {
					return err
				}
			}
			if err := w.value(item, depth); err != nil {
				return err
			}
		}
		if end >= 0 && len(w.rest) != end {
			return errors.New("block is not of the size that it says")
		}
	}
}

// room refuses a count that the following bytes cannot hold.
func (w *walk) room(count, least int64) error {
	if count < 0 || count > w.values {
		return fmt.Errorf("count %d: more than %d values", uint64(count), maxValues)
	}
	if least > 0 {
		if count > int64(len(w.rest))/least {
			return fmt.Errorf("count %d with %d bytes left: %w", count, len(w.rest), errShort)
		}
		return nil
	}
	if w.empty -= count; w.empty < 0 {
		return fmt.Errorf("more than %d items that take no bytes", maxEmpty)
	}
	return nil
}

func (w *walk) long() (int64, error) {
	n, size := binary.Varint(w.rest)
	if size == 0 {
		return 0, errShort
	}
	if size < 0 {
		return 0, errors.New("a number is longer than 64 bits")
	}
	w.rest = w.rest[size:]
	return n, nil
}

// int reads a long of 32 bits, in at most five bytes.
func (w *walk) int() (int64, error) {
	n, size := binary.Varint(w.rest)
	switch {
	case size == 0:
		return 0, errShort
	case size < 0 || size > 5 || n < math.MinInt32 || n > math.MaxInt32:
		return 0, errors.New("a number is longer than 32 bits")
	}
	w.rest = w.rest[size:]
	return n, nil
}

func (w *walk) index(n int) (int64, error) {
	i, err := w.int()
	if err == nil && (i < 0 || i >= int64(n)) {
		err = fmt.Errorf("index %d, the schema has %d", i, n)
	}
	return i, err
}

func (w *walk) skip(n int64) error {
	if n < 0 || n > int64(len(w.rest)) {
		return fmt.Errorf("length %d with %d bytes left: %w", n, len(w.rest), errShort)
	}
	w.rest = w.rest[n:]
	return nil
}

func (w *walk) bytes() ([]byte, error) {
	n, err := w.long()
	if err != nil {
		return nil, err
	}
	b := w.rest
	if err := w.skip(n); err != nil {
		return nil, err
	}
	return b[:n], nil
}

func (w *walk) text() error {
	b, err := w.bytes()
	if err == nil && !utf8.Valid(b) {
		err = errors.New("a string is not UTF-8")
	}
	return err
}
