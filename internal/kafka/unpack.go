package kafka

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kgo limits what one batch unpacks to (MaxDecompressBatchBytes), but unpacks all batches of a response before the first of them is
// polled. 64 MiB of zeros have two kilobytes as a batch, so the 8 MiB of a response could fill hundreds of gigabytes. Nor does it limit
// the messages of a batch, each of which has seven bytes there and hundreds in memory, or their headers, each of which has two bytes there.

const (
	// recordBytes is the approximate memory of a message without key and value.
	recordBytes = 256
	// headerBytes is the approximate memory of a header without name and value: in kgo's record, and in the message that is made of it. The
	// first usualHeaders of a record do not count: a message of ours has up to as many.
	headerBytes, usualHeaders = 80, 16
	// usualRatio is the largest ratio by which ordinary data is compressed, and usualGrowth the one by which small messages grow in memory.
	// Batches up to these are not counted: the size of a response limits them.
	usualRatio, usualGrowth = 16, 64
	// collectEvery is the shortest time between two garbage collections that wait for the memory of batches.
	collectEvery = 100 * time.Millisecond
)

// errLater is the error for a batch for which there is no room now. kgo fetches it again after a while, since the error is retriable,
// and returns the batches before it.
var errLater = fmt.Errorf("the batches that were unpacked before it are still in memory: %w", kerr.ThrottlingQuotaExceeded)

// An unpacker is a kgo.Decompressor that bounds the memory of all batches of a client that become much larger when they are unpacked:
// twice what one batch may unpack to, and one batch more for each broker.
type unpacker struct {
	built chan struct{} // closed once inner and limit are set
	inner kgo.Decompressor
	limit int64 // of one batch

	held      atomic.Int64 // memory of the counted batches that is not free yet
	mu        sync.Mutex
	collected time.Time // guarded by mu
}

// of sets the limit of a client's options, which the client has once it is built.
func (u *unpacker) of(client *kgo.Client) error {
	limit, _ := client.OptValue(kgo.MaxDecompressBatchBytes).(int)
	bounded, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1"), kgo.MaxDecompressBatchBytes(limit)) // connects to none
	if err != nil {
		return err
	}
	defer bounded.Close()
	u.inner, _ = bounded.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	u.limit = int64(limit)
	close(u.built)
	return nil
}

// Decompress implements kgo.Decompressor.
func (u *unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	<-u.built
	out, err := u.inner.Decompress(src, codec)
	if err != nil || codec == kgo.CodecNone || len(out) == 0 {
		return out, err
	}
	size := int64(len(out)) + memoryOf(out, 2*u.limit)
	switch {
	case size > 2*u.limit:
		return nil, kgo.ErrMaxDecompress
	case len(out) <= usualRatio*len(src) && size <= usualGrowth*int64(len(src)):
		return out, nil
	case !u.room():
		return nil, errLater
	}
	u.held.Add(size)
	runtime.AddCleanup(&out[0], func(size int64) { u.held.Add(-size) }, size)
	return out, nil
}

// room reports whether a batch may be kept. The memory of earlier ones is free only after a garbage collection.
func (u *unpacker) room() bool {
	most := 2 * u.limit
	if u.held.Load() < most {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.collected) > collectEvery {
		runtime.GC()
		u.collected = time.Now()
	}
	return u.held.Load() < most
}

// memoryOf returns the approximate memory of the records of an unpacked batch, without keys, values and the contents of headers. It stops above
// most.
func memoryOf(batch []byte, most int64) (size int64) {
	for len(batch) > 0 && size <= most {
		length, n := binary.Varint(batch)
		if n <= 0 || length < 0 || length > int64(len(batch)-n) {
			return size
		}
		size += recordBytes + headerBytes*max(0, countHeaders(batch[n:n+int(length)])-usualHeaders)
		batch = batch[n+int(length):]
	}
	return size
}

// countHeaders returns the number of headers that a record states. kgo allocates as many, if the record has as many bytes behind the number.
func countHeaders(record []byte) int64 {
	rest := record[min(1, len(record)):] // behind the attributes
	next := func() int64 {
		value, n := binary.Varint(rest)
		if n <= 0 {
			rest = nil
			return 0
		}
		rest = rest[n:]
		return value
	}
	next()        // time
	next()        // offset
	for range 2 { // key and value
		length := next()
		rest = rest[min(max(length, 0), int64(len(rest))):]
	}
	count := next()
	return max(0, min(count, int64(len(rest))))
}

// keeper is a kgo.PoolDecompressBytes that gives no memory and takes none. Because of it each record refers to the bytes of its batch, so that
// these are not collected before the record: a message without key and value would not refer to them, and its batch would count no more.
type keeper struct{}

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (keeper) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return nil }

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (keeper) PutDecompressBytes([]byte) {}
