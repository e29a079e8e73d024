package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/troupe-go/troupe/bench/harness"
)

// A mapped is outbox-relay with the mapping of the table in Debezium's documentation. With wal its slot is made before there are rows,
// and it reads them from the log. Without, it reads the rows from the table, as at its first start on a table in use, and makes its
// slot meanwhile.
type mapped struct {
	name string
	wal  bool
}

func (m *mapped) String() string { return m.name }

func (*mapped) table() table { return debeziumTable }

func (m *mapped) prime(ctx context.Context, b *bed) error {
	if !m.wal {
		return nil
	}
	p, err := m.start(ctx, b)
	if err != nil {
		return err
	}
	defer p.stop()
	return p.ready(ctx)
}

func (m *mapped) start(_ context.Context, b *bed) (*program, error) {
	file := filepath.Join(b.dir, b.name+"-relay.yaml")
	text := fmt.Sprintf(`brokers: [%s]
outboxes:
  - name: bench
    database-url: %q
    source: wal
    mapping:
      table: public.outbox
      route.by.field: aggregatetype
      route.topic.replacement: "${routedByValue}"
      table.fields.additional.placement: type:header:eventType
`, strings.Join(b.addrs, ", "), b.url())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := b.startRelay([]string{"--config", file}, os.Environ())
	if err != nil {
		return nil, err
	}
	ready := p.begun
	p.begun = func(ctx context.Context) (bool, error) {
		is, err := ready(ctx)
		return is && b.streamsMapped(ctx), err
	}
	return p, nil
}

// streamsMapped reports whether the relay of a mapped table streams.
func (b *bed) streamsMapped(ctx context.Context) bool {
	const stored = "SELECT EXISTS (SELECT FROM troupe.mapped_tables WHERE source = 'wal' AND sweep IS NULL AND published IS NOT NULL)"
	yes, err := harness.Query[bool](ctx, b.socketURL(), stored)
	return err == nil && yes && b.reads(ctx)
}
