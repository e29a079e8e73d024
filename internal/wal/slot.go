package wal

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// DefaultSlot returns the default slot name for a table with a mapping, or for troupe.outbox if table is empty. Slot names are shared by all
// databases of a cluster.
func DefaultSlot(database, table string) string {
	name := database
	if table != "" {
		name += "." + table
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, name)
	if plain == name && len(plain) < 50 {
		return "troupe_" + plain
	}
	return fmt.Sprintf("troupe_%.40s_%08x", plain, crc32.ChecksumIEEE([]byte(name)))
}
