//go:build unix

package sidecar_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each outbox of a file is valid, and two of them are not valid together.
func TestOutboxesThatHinderEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ outboxes, want string }{
		"one table for two brokers": {`
  - {name: a, database-url: "postgres://one@db:5432/shop", brokers: "kafka-1:9092"}
  - {name: b, database-url: "postgres://two@db/shop", brokers: "kafka-2:9092"}
`, "outboxes a and b: both are one table of one database"},
		"databases of one name on two servers, exactly once": {`
  - {name: a, database-url: "postgres://db-1/app", delivery: exactly-once}
  - {name: b, database-url: "postgres://db-2/app", delivery: exactly-once}
`, "outboxes a and b: both deliver exactly once, and have one slot name"},
		"one slot name for all, exactly once": {`
  - {name: a, database-url: "postgres://db-1/shop", slot: relay, delivery: exactly-once, brokers: ["k:1", "k:2"]}
  - {name: b, database-url: "postgres://db-2/bank", slot: relay, delivery: exactly-once, brokers: ["k:2", "k:1"]}
`, "give one of them another slot"},
		"one slot for the tables of a database": {`
  - {name: own, database-url: "postgres://db/shop", slot: relay}
  - {name: theirs, database-url: "postgres://db/shop", slot: relay, mapping: {table: public.outbox}}
`, "outboxes own and theirs: both have slot relay of one server"},
		"one has the default slot of the other": {`
  - {name: own, database-url: "postgres://db/shop"}
  - {name: theirs, database-url: "postgres://db/shop", slot: troupe_shop, mapping: {table: public.outbox}}
`, "outboxes own and theirs: both have slot troupe_shop of one server"},
		"one has the default slot of the other, exactly once": {`
  - {name: a, database-url: "postgres://db-1/shop", delivery: exactly-once}
  - {name: b, database-url: "postgres://db-2/bank", slot: troupe_shop, delivery: exactly-once}
`, "outboxes a and b: both deliver exactly once, and have one slot name"},
		"an address names no database, which is the user's": {`
  - {name: a, database-url: "postgres://shop@db", service: shop}
  - {name: b, database-url: "postgres://two@db/shop", slot: another}
`, "outboxes a and b: both are one table of one database"},
		"an address names no database, exactly once": {`
  - {name: a, database-url: "postgres://shop@db-1", service: shop, delivery: exactly-once}
  - {name: b, database-url: "postgres://db-2/bank", slot: troupe_shop, delivery: exactly-once}
`, "outboxes a and b: both deliver exactly once, and have one slot name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, nil, "run", "--config", configFile(t, "brokers: kafka:9092\nadmin: 127.0.0.1:1\noutboxes:"+c.outboxes))
			require.Equal(t, 2, r.code)
			require.Contains(t, r.stderr, c.want)
		})
	}
}
