package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// idle runs r with an empty outbox.
func (s *stage) idle(ctx context.Context, r relayer, tcp bool) (cost idling, err error) {
	b, err := s.newBed(ctx, tcp, 1, r, r.table())
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := harness.Execute(ctx, s.Postgres.SocketURL(""), "ALTER DATABASE "+b.name+" SET log_statement = 'all'"); err != nil {
		return cost, err
	}
	p, err := b.startReady(ctx, r)
	if err != nil {
		return cost, err
	}
	defer p.stop()
	if err := harness.Sleep(ctx, s.warm); err != nil { // until it has seen that the outbox is empty
		return cost, err
	}
	if cost, err = s.idleCost(ctx, p, regexp.QuoteMeta(b.name)); err != nil {
		return cost, err
	}
	return cost, p.alive()
}

// idleCost returns the cost of a relay while its outboxes are empty. databases is a regular expression of its databases' names.
func (s *stage) idleCost(ctx context.Context, p *program, databases string) (cost idling, err error) {
	log, err := os.Open(filepath.Join(s.dir, "postgres", "postgres.log"))
	if err != nil {
		return cost, err
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return cost, err
	}
	before, began := s.used(p), time.Now()
	if err := harness.Sleep(ctx, s.time); err != nil {
		return cost, err
	}
	after, minutes := s.used(p), time.Since(began).Minutes()
	n, err := countStatements(log, databases)
	return idling{float64(n) / minutes, (after.own - before.own) / minutes, (after.postgres - before.postgres) / minutes}, err
}

// countStatements counts the statements in a server's log of the databases whose names match a regular expression. Lines of the log have the
// prefix that devstack sets: time, process, database.
func countStatements(log io.Reader, databases string) (n int, err error) {
	statement := regexp.MustCompile(`^\S+ \S+ \S+ \[\d+\] ` + databases + ` LOG:  (statement|execute [^:]*|fastpath function call): `)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if statement.Match(lines.Bytes()) {
			n++
		}
	}
	return n, lines.Err()
}

// measureIdle measures once: the figures do not vary in a way that needs a comparison.
func (s *stage) measureIdle(ctx context.Context) error {
	fmt.Printf("an empty outbox, for %s\n", s.time)
	idleTable.Heading()
	for _, c := range s.contenders(s.relaying()) {
		cost, err := s.idle(ctx, s.relayers[c.way].latency, c.tcp)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		idleTable.Show(c.name, cost)
	}
	return nil
}
