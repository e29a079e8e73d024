package repair_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// redriverEnv holds the task of a test binary that is run again to redrive until it is killed.
const redriverEnv = "TROUPE_TEST_REDRIVER"

type redriver struct {
	URL   string
	Until int // after so many it kills itself, in the middle of its work
}

func beRedriver(text string) {
	var task redriver
	must(json.Unmarshal([]byte(text), &task))
	pool, err := pgxpool.New(context.Background(), task.URL)
	must(err)
	desk, err := repair.New(repair.Config{Pool: pool})
	must(err)
	cfg := quickly
	cfg.Progress = func(r repair.RedriveResult) {
		if r.Redriven == task.Until {
			go func() { // not between two transactions, but at any point of the next one
				self, err := os.FindProcess(os.Getpid())
				must(err)
				must(self.Kill())
			}()
		}
	}
	_, err = desk.Redrive(context.Background(), repair.Filter{}, cfg)
	must(err)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
}

// TestAKilledRedriveGoesOnWithTheRest checks that none is lost or sent twice, and that each key keeps its order.
func TestAKilledRedriveGoesOnWithTheRest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	stop := s.participant()
	const keys, each = 10, 40
	for n := range each {
		for k := range keys {
			s.send(s.command(fmt.Sprintf("k%d", k), Charge{N: n}))
		}
	}
	s.waitAll(keys*each, openLetters)
	stop()
	s.exec("DELETE FROM rules")

	killed := 0
	for range 4 { // each redrives its tenth, and as many more as the kill takes, which may be many on a busy machine
		task, err := json.Marshal(redriver{URL: s.pool.Config().ConnString(), Until: keys * each / 10})
		require.NoError(t, err)
		self, err := os.Executable()
		require.NoError(t, err)
		child := exec.Command(self)
		child.Env = append(os.Environ(), redriverEnv+"="+string(task))
		out, err := child.CombinedOutput()
		if err != nil && child.ProcessState.ExitCode() == -1 {
			killed++
		}
		require.NotEqual(t, 4, child.ProcessState.ExitCode(), string(out))
	}
	require.GreaterOrEqual(t, killed, 3)
	open := s.count(openLetters)
	require.Positive(t, open)
	r, err := s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	require.Equal(t, open, r.Redriven)

	require.Equal(t, keys*each, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'redrive'"))
	require.Equal(t, keys*each, s.count("SELECT count(DISTINCT id) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()))
	s.relay()
	s.participant()
	s.waitAll(keys*each, "SELECT count(*) FROM charges")
	require.Zero(t, s.count(`
		SELECT count(*)
		FROM (SELECT n, lag(n, 1, -1) OVER (PARTITION BY key ORDER BY position) AS before FROM charges) AS c
		WHERE n <> before + 1`), "each key has its messages once, in their order")
	require.Zero(t, s.count(openLetters))
}

// TestTwoWhoRedriveAtOnceDoNotDouble also checks that the outbox keeps the order per key.
func TestTwoWhoRedriveAtOnceDoNotDouble(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	stop := s.participant()
	const n = 100
	for i := range n {
		s.send(s.command("a", Charge{N: i}))
	}
	s.waitAll(n, openLetters)
	stop()
	results := make(chan int)
	for range 3 {
		go func() {
			r, err := s.desk.Redrive(context.Background(), repair.Filter{}, quickly)
			if err != nil {
				r.Redriven = -1000
			}
			results <- r.Redriven
		}()
	}
	require.Equal(t, n, <-results+<-results+<-results)
	entries := s.entries(s.hop.Commands())
	require.Len(t, entries, n)
	for i, m := range entries {
		require.Contains(t, string(m.Payload), fmt.Sprintf(`"n":%d,`, i))
	}
}
