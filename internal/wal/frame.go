package wal

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	frameHead = 5       // size of a frame's kind and length
	walHead   = 25      // size of the header of a message with WAL: kind, start, end, time
	mostFrame = 1 << 30 // bytes of a frame; Postgres sends none that is larger
)

// oneFrame is the input of pgproto3 until the stream begins. pgproto3 has a buffer of its own. Each Read returns bytes of one frame at
// most, so that buffer never holds bytes of the stream: Next reads them from Conn.in.
type oneFrame struct {
	in   *bufio.Reader
	left int // bytes of the frame that is being read
}

func (f *oneFrame) Read(to []byte) (n int, err error) {
	if f.left == 0 {
		head, err := f.in.Peek(frameHead)
		if err != nil {
			return 0, err
		}
		f.left = 1 + int(binary.BigEndian.Uint32(head[1:]))
	}
	n, err = f.in.Read(to[:min(len(to), f.left)])
	f.left -= n
	return n, err
}

// frame reads the next frame, whose body is valid until the next call. long is true for a message of pg_logical_emit_message that
// is larger than the read buffer: its body is not read, but counted in c.skip. Every role that may connect can write one of a gigabyte.
func (c *Conn) frame() (kind byte, body []byte, long bool, err error) {
	if _, err := c.in.Discard(c.done); err != nil {
		return 0, nil, false, err
	}
	c.done = 0
	head, err := c.in.Peek(frameHead)
	if err != nil {
		return 0, nil, false, err
	}
	kind = head[0]
	size := int(binary.BigEndian.Uint32(head[1:])) - (frameHead - 1)
	if size < 0 || size > mostFrame {
		return 0, nil, false, fmt.Errorf("a frame of %d bytes", size)
	}
	if frameHead+size <= readSize {
		whole, err := c.in.Peek(frameHead + size)
		if err != nil {
			return 0, nil, false, err
		}
		c.done = len(whole)
		return kind, whole[frameHead:], false, nil
	}
	begin, err := c.in.Peek(frameHead + walHead + 1)
	if err != nil {
		return 0, nil, false, err
	}
	if kind == copyData && begin[frameHead] == walData && begin[frameHead+walHead] == message {
		c.skip = frameHead + size
		return kind, nil, true, nil
	}
	_, _ = c.in.Discard(frameHead) // it was peeked
	body = make([]byte, size)
	_, err = io.ReadFull(c.in, body)
	return kind, body, false, err
}

// skipSome discards some of a frame that is skipped.
func (c *Conn) skipSome() error {
	n, err := c.in.Discard(min(c.skip, readSize))
	c.skip -= n
	return err
}
