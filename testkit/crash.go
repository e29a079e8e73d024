package testkit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
)

const (
	maxSteps = 1000 // far more than a handler has
	atOnce   = 4    // runs at once, which mostly wait
)

// An Effect reads the effect of a handler, as a value that is equal for equal effects. Leave out values that differ from run to
// run, such as times. CrashAtEveryStep does not notice an effect that this function does not read.
type Effect func(ctx context.Context, pool *pgxpool.Pool) (any, error)

// Query returns an Effect that reads the rows of a query as Postgres formats them, in any order.
func Query(sql string, args ...any) Effect {
	args = append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)
	return func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
		rows, err := pool.Query(ctx, sql, args...)
		if err != nil {
			return nil, err
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var values []string
			for _, v := range row.RawValues() {
				if v == nil {
					v = []byte("NULL")
				}
				values = append(values, string(v))
			}
			return strings.Join(values, " "), nil
		})
		slices.Sort(all)
		return all, err
	}
}

// CrashAtEveryStep delivers one message in many runs, each with its own participant and database. Each run cuts the connection of
// the handler's transaction one step later than the previous one: before a statement is sent, after it was executed and before
// its answer arrives, and so on to the COMMIT, which never reaches the server in one run, and whose answer is lost in another.
// The last run is the one in which no step is left to cut. Several runs are made at once.
//
// In each run the participant tries the message again, and then the message is delivered once more. The test fails, and names the
// step, if the effect or the messages in the outbox differ from an undisturbed run: in particular the answer must be there once.
//
// given prepares the database if the handler needs rows in it, and returns the message. given and effect are called for each run,
// several at once.
func CrashAtEveryStep(t testing.TB, cfg StageConfig, given func(s *Stage) envelope.Message, effect Effect) {
	t.Helper()
	c := &crash{cfg: cfg, given: given, effect: effect}
	var want after
	if !c.attempt(t, func(t testing.TB) { want = c.deliver(t, 0) }) {
		t.FailNow()
	}
	if want.problem != "" {
		t.Fatalf("without any crash: %s", want.problem)
	}
	crashes := c.all(t)
	for i, got := range crashes {
		t.Logf("crash %d: %s", i+1, got.step)
		switch {
		case got.problem != "":
			t.Errorf("crash %s: %s", got.step, got.problem)
		case !assert.ObjectsAreEqual(want.effect, got.effect):
			t.Errorf("crash %s: the effect is %+v, without a crash it is %+v", got.step, got.effect, want.effect)
		case !slices.Equal(want.outbox, got.outbox):
			t.Errorf("crash %s: the outbox has %v, without a crash it has %v", got.step, got.outbox, want.outbox)
		}
	}
}

// all makes runs until one is not reached by its crash.
func (c *crash) all(t testing.TB) (crashes []after) {
	t.Helper()
	var mu sync.Mutex
	var next int
	var done, failed bool
	found := make(map[int]after)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for {
				mu.Lock()
				next++
				n := next
				stop := done || failed
				mu.Unlock()
				if stop {
					return
				}
				var got after
				ok := c.attempt(t, func(t testing.TB) { got = c.deliver(t, n) })
				mu.Lock()
				failed = failed || !ok
				done = done || got.step == "" || n > maxSteps
				found[n] = got
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	switch {
	case failed:
		t.FailNow()
	case found[1].step == "":
		t.Fatalf("there is nothing to crash: no transaction was made for the message; is there a handler for it?")
	case next > maxSteps:
		t.Fatalf("%d crashes and no end: the handler's transaction has too many steps", maxSteps)
	}
	for n := 1; found[n].step != ""; n++ {
		crashes = append(crashes, found[n])
	}
	return crashes
}

// crash holds the arguments that all runs of one CrashAtEveryStep share.
type crash struct {
	cfg    StageConfig
	given  func(*Stage) envelope.Message
	effect Effect
}

// after is the result of one run.
type after struct {
	step    string // the step at which the connection was cut; "" if it was not
	problem string // why the message neither took effect nor was refused; "" if it did
	effect  any
	outbox  []string
}

// deliver makes one run whose connection is cut at the nth step; 0: at none.
func (c *crash) deliver(t testing.TB, n int) (left after) {
	t.Helper()
	s := open(t, c.cfg, Logger(t).Level(zerolog.ErrorLevel)) // each crash is a warning
	m := c.given(s)
	require.NotEmpty(t, m.ID, "the message of given has no ID, by which its transaction is known")
	s.wire.arm(n, m.Identity())
	s.Send(m)
	s.Settle()
	left.step = s.wire.disarm()
	if left.step != "" {
		s.Send(m)
		s.Settle()
	}
	if left.problem = s.problem(); left.problem != "" {
		return left
	}
	var err error
	left.effect, err = c.effect(t.Context(), s.Pool)
	require.NoError(t, err, "read the effect")
	left.outbox = s.summary()
	return left
}

// problem returns the reason why a message has neither taken effect nor was refused.
func (s *Stage) problem() string {
	s.t.Helper()
	for _, h := range s.held() {
		return fmt.Sprintf("the message is held after %d failed attempts, the last: %s", h.Attempts, h.Error)
	}
	var class, text string
	err := s.Pool.QueryRow(s.t.Context(), "SELECT error_class, error FROM troupe.dead_letters").Scan(&class, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return ""
	}
	require.NoError(s.t, err)
	return fmt.Sprintf("the message became a dead letter (%s): %s", class, text)
}

// summary returns a line for each message in the outbox.
func (s *Stage) summary() (lines []string) {
	s.t.Helper()
	for _, m := range s.outbox() {
		topic := strings.TrimPrefix(m.Topic, s.Hop.Flow()+".")
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %q %s %s", topic, m.Key, m.Type, m.Outcome)))
	}
	slices.Sort(lines)
	return lines
}

// attempt runs f as a test of its own within t: on a goroutine that FailNow ends, and with Cleanup after it. It reports whether f
// returned.
func (c *crash) attempt(t testing.TB, f func(testing.TB)) (ended bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := &scope{TB: t}
		defer s.end()
		f(s)
		ended = true
	}()
	<-done
	return ended
}

// scope is the testing.TB of one run.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) FailNow() {
	s.Fail()
	runtime.Goexit()
}

func (s *scope) Fatal(args ...any) {
	s.Helper()
	s.Error(args...)
	s.FailNow()
}

func (s *scope) Fatalf(format string, args ...any) {
	s.Helper()
	s.Errorf(format, args...)
	s.FailNow()
}

func (s *scope) end() {
	for _, f := range s.cleanups {
		defer f() // the last one first, and all of them even if one ends the goroutine
	}
}
