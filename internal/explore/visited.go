package explore

import (
	"bytes"
	"hash/maphash"
)

// visited has all worlds that were found, in the order of the search, so that it is also the queue of a breadth-first search,
// with each world's parent. Worlds are compared, not only their hashes.
type visited struct {
	blocks [][]byte // of blockSize; each world is within one of them
	at     []uint64 // where world i begins: block and offset; its length comes before it
	parent []uint32
	table  []uint64 // open addressing: 32 bits of the hash, 32 bits of the index + 1
	seed   maphash.Seed
}

const blockSize = 1 << 20

func newVisited() *visited {
	return &visited{table: make([]uint64, 1<<16), seed: maphash.MakeSeed()}
}

func (v *visited) len() int { return len(v.at) }

// world returns the bytes of world i.
func (v *visited) world(i uint32) []byte {
	block, offset := v.blocks[v.at[i]>>32], uint32(v.at[i])
	n := uint32(block[offset]) | uint32(block[offset+1])<<8
	return block[offset+2 : offset+2+n]
}

// add stores world unless it is known.
func (v *visited) add(world []byte, parent uint32) {
	hash := maphash.Bytes(v.seed, world)
	mask := uint64(len(v.table) - 1)
	tag := hash >> 32
	for slot := hash & mask; ; slot = (slot + 1) & mask {
		entry := v.table[slot]
		if entry == 0 {
			index := v.keep(world, parent)
			v.table[slot] = tag<<32 | uint64(index+1)
			if v.len()*2 > len(v.table) {
				v.grow()
			}
			return
		}
		if index := uint32(entry) - 1; entry>>32 == tag && bytes.Equal(v.world(index), world) {
			return
		}
	}
}

func (v *visited) keep(world []byte, parent uint32) uint32 {
	last := len(v.blocks) - 1
	if last < 0 || len(v.blocks[last])+len(world)+2 > blockSize {
		v.blocks = append(v.blocks, make([]byte, 0, blockSize))
		last++
	}
	v.at = append(v.at, uint64(last)<<32|uint64(len(v.blocks[last])))
	v.blocks[last] = append(append(v.blocks[last], byte(len(world)), byte(len(world)>>8)), world...)
	v.parent = append(v.parent, parent)
	return uint32(v.len() - 1)
}

func (v *visited) grow() {
	v.table = make([]uint64, 2*len(v.table))
	mask := uint64(len(v.table) - 1)
	for i := range v.at {
		hash := maphash.Bytes(v.seed, v.world(uint32(i)))
		slot := hash & mask
		for v.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		v.table[slot] = hash>>32<<32 | uint64(i+1)
	}
}
