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
)

// A rest is the cost of an idle relay.
type rest struct {
	statements float64 // a minute, as the server logs them
	cpu        float64 // seconds a minute
	postgres   float64
}

// idle runs r with an empty outbox.
func (s *stage) idle(ctx context.Context, r relayer, tcp bool) (at rest, err error) {
	b, err := s.bed(ctx, tcp, 1, r.into())
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := r.prime(ctx, b); err != nil {
		return at, fmt.Errorf("prime: %w", err)
	}
	if err := execute(ctx, s.postgres.SocketURL(""), "ALTER DATABASE "+b.name+" SET log_statement = 'all'"); err != nil {
		return at, err
	}
	p, err := r.start(ctx, b)
	if err != nil {
		return at, err
	}
	defer p.stop()
	if err := p.ready(ctx); err != nil {
		return at, err
	}
	if err := sleep(ctx, s.warm); err != nil { // until it has seen that the outbox is empty
		return at, err
	}
	log, err := os.Open(filepath.Join(s.dir, "postgres", "postgres.log"))
	if err != nil {
		return at, err
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return at, err
	}
	before, began := s.used(p), time.Now()
	if err := sleep(ctx, s.time); err != nil {
		return at, err
	}
	after, minutes := s.used(p), time.Since(began).Minutes()
	n, err := countStatements(log, b.name)
	if err != nil {
		return at, err
	}
	at = rest{float64(n) / minutes, (after.own - before.own) / minutes, (after.postgres - before.postgres) / minutes}
	return at, p.alive()
}

// countStatements counts the statements of a database in a server's log, whose lines have the prefix that devstack sets: time,
// process, database.
func countStatements(log io.Reader, database string) (n int, err error) {
	statement := regexp.MustCompile(`^\S+ \S+ \S+ \[\d+\] ` + regexp.QuoteMeta(database) + ` LOG:  (statement|execute [^:]*|fastpath function call): `)
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
func measureIdle(ctx context.Context, s *stage) error {
	fmt.Printf("an empty outbox, for %s\n", s.time)
	fmt.Printf("%-38s %14s %10s %10s\n", "", "statements/min", "cpu s/min", "pg s/min")
	for _, c := range s.contenders(s.relaying()) {
		at, err := s.idle(ctx, s.relayers[c.way].latency, c.tcp)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("%-38s %14.0f %10.2f %10.2f\n", c.name, at.statements, at.cpu, at.postgres)
	}
	return nil
}
