package credentials

import (
	"context"
	"strconv"
	"sync"
)

// A target is a database and the role that connects to it.
type target struct {
	host     string
	port     uint16
	user     string
	database string
}

// perConnection runs a command for each target, and has the Shared password of each. A program has few targets, so none is
// removed.
type perConnection struct {
	command Command
	mu      sync.Mutex
	all     map[target]*Shared[string]
}

func (p *perConnection) of(t target) *Shared[string] {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.all[t]
	if s == nil {
		s = &Shared[string]{Fetch: func(ctx context.Context) (string, error) {
			return p.command.RunLine(ctx, "PGHOST="+t.host, "PGPORT="+strconv.Itoa(int(t.port)), "PGUSER="+t.user, "PGDATABASE="+t.database)
		}}
		p.all[t] = s
	}
	return s
}
