package participant_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// claims executes the statement that claims local work, in a session that planned it while its table was empty.
type claims struct {
	t    *testing.T
	conn *pgx.Conn
}

func newClaims(t *testing.T) *claims {
	conn, err := pgx.ConnectConfig(t.Context(), testkit.Database(t).Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	c := &claims{t, conn}
	text, err := os.ReadFile("sql/claim_local.sql")
	require.NoError(t, err)
	sql := string(text)
	for name, value := range map[string]string{
		"from": `''`, "quarantine": "true", "stale": "60", "class": "1", "member": "1", "own": "'{}'", "max_attempts": "9", "types": "'{T}'", "topics": "'{t}'",
		"unconsumed": "'{}'", "topic_class": "1", "bytes": "4194304",
		"yield": "1", "group": "$1", "limit": "$2", "due_first": "$3",
	} {
		sql = regexp.MustCompile("@"+name+`\b`).ReplaceAllLiteralString(sql, value)
	}
	c.exec(`SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_hashjoin = off;
		SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; PREPARE claim (text, int, bool) AS ` + sql)
	c.take(1, true)
	return c
}

func (c *claims) exec(sql string) {
	c.t.Helper()
	_, err := c.conn.Exec(c.t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(c.t, err)
}

// insert adds an entry for each number of a range, at this position and with this key. One with a next try has failed once.
func (c *claims) insert(from, to int, position, key, nextTry string) {
	c.t.Helper()
	c.exec(`INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, type, headers, created_at, hold_key, attempts,
			last_error, first_failed_at, next_try)
		SELECT ` + position + `, 'g', gen_random_uuid(), 't', ` + key + `, 'T', '{}', now(), troupe.hold_key(n, ` + key + `, NULL),
			(` + nextTry + ` IS NOT NULL)::int, CASE WHEN ` + nextTry + ` IS NOT NULL THEN 'e' END, ` + nextTry + `, ` + nextTry + `
		FROM generate_series(` + strconv.Itoa(from) + `, ` + strconv.Itoa(to) + `) AS n`)
}

// take returns the positions that a claim would claim, and leaves them as they are.
func (c *claims) take(limit int, dueFirst bool) (positions []int64) {
	c.t.Helper()
	c.exec("BEGIN")
	defer c.exec("ROLLBACK")
	rows, err := c.conn.Query(c.t.Context(), "EXECUTE claim ('g', "+strconv.Itoa(limit)+", "+strconv.FormatBool(dueFirst)+")",
		pgx.QueryExecModeSimpleProtocol)
	require.NoError(c.t, err)
	for rows.Next() {
		position, err := strconv.ParseInt(string(rows.RawValues()[0]), 10, 64)
		require.NoError(c.t, err)
		positions = append(positions, position)
	}
	require.NoError(c.t, rows.Err())
	slices.Sort(positions)
	return positions
}

// read returns the most rows that a node of a claim's plan returns or drops.
func (c *claims) read(limit int, dueFirst bool) (most float64) {
	c.t.Helper()
	c.exec("BEGIN")
	defer c.exec("ROLLBACK")
	rows, err := c.conn.Query(c.t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE claim ('g', "+strconv.Itoa(limit)+", "+
		strconv.FormatBool(dueFirst)+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(c.t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(c.t, err)
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		require.NoError(c.t, err)
		return n
	}
	given, dropped := regexp.MustCompile(`rows=([\d.]+) loops=(\d+)`), regexp.MustCompile(`Rows Removed by .*: (\d+)`)
	loops := 1.0
	for _, line := range plan {
		if found := given.FindStringSubmatch(line); found != nil {
			loops = number(found[2])
			most = max(most, number(found[1])*loops)
		}
		if found := dropped.FindStringSubmatch(line); found != nil {
			most = max(most, number(found[1])*loops)
		}
	}
	require.Positive(c.t, loops)
	return most
}

// TestAClaimOfLocalWorkDoesNotReadWhatWaits checks that entries that wait for their next try cost a claim nothing, however many
// keys wait.
func TestAClaimOfLocalWorkDoesNotReadWhatWaits(t *testing.T) {
	t.Parallel()
	const waiting = 3000
	c := newClaims(t)
	c.insert(1, waiting, "n", "'waits-' || n", "now() + interval '1 hour'")
	c.insert(1, 1, "5000", "'due'", "now() - interval '1 minute'")
	c.insert(1, 1, "5001", "'fresh'", "NULL::timestamptz")
	for _, statistics := range []bool{false, true} {
		if statistics {
			c.exec("VACUUM ANALYZE troupe.local_work")
		}
		for _, dueFirst := range []bool{false, true} {
			require.Equal(t, []int64{5000, 5001}, c.take(10, dueFirst))
			require.Less(t, c.read(10, dueFirst), 100.0, "statistics: %v, due first: %v", statistics, dueFirst)
		}
	}
}

// TestAClaimOfLocalWorkBeginsWithWhatIsDueOrWithTheOthers checks that a claim that is full of due entries leaves the others to
// the next claim, and the other way round.
func TestAClaimOfLocalWorkBeginsWithWhatIsDueOrWithTheOthers(t *testing.T) {
	t.Parallel()
	c := newClaims(t)
	c.insert(1, 20, "n", "'due-' || n", "now() - interval '1 minute'")
	c.insert(21, 40, "n", "'fresh-' || n", "NULL::timestamptz")
	due, fresh := c.take(20, true), c.take(20, false)
	require.Len(t, due, 20)
	require.Len(t, fresh, 20)
	require.Equal(t, int64(20), due[19])
	require.Equal(t, int64(21), fresh[0])
	require.Len(t, c.take(30, true), 30)
	require.Len(t, c.take(30, false), 30)
}

// TestAClaimOfLocalWorkKeepsTheOrderOfAKeyWhoseFirstEntryCameLate checks a transaction that commits late: its entry comes
// before one of its key that has failed already.
func TestAClaimOfLocalWorkKeepsTheOrderOfAKeyWhoseFirstEntryCameLate(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"now() - interval '1 minute'", "now() + interval '1 hour'"} {
		c := newClaims(t)
		c.insert(5, 5, "n", "'a'", next)
		c.insert(6, 7, "n", "'a'", "NULL::timestamptz")
		c.insert(3, 4, "n", "'a'", "NULL::timestamptz")
		for _, dueFirst := range []bool{false, true} {
			require.Equal(t, []int64{3, 4}, c.take(10, dueFirst))
		}
		c.exec("DELETE FROM troupe.local_work WHERE position < 5")
		for _, dueFirst := range []bool{false, true} {
			took := c.take(10, dueFirst)
			if next == "now() - interval '1 minute'" {
				require.Equal(t, []int64{5}, took)
			} else {
				require.Empty(t, took)
			}
		}
	}
}

// TestLocalWorkThatIsAlwaysDueLeavesTurnsToOtherKeys checks that keys that are tried without a pause leave turns to a key that
// has not run.
func TestLocalWorkThatIsAlwaysDueLeavesTurnsToOtherKeys(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.writeAll(50, 1)
	p := s.new(func(c *participant.Config) {
		c.Batch, c.Concurrency = 1, 1
		c.Retry = retry.Policy{Attempts: 1_000_000, Initial: time.Nanosecond, Cap: time.Nanosecond}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.Fail == "" {
			return participant.Outcome{}, errAsked
		}
		return participant.Succeed(Counted{}), nil
	})
	s.start(p)
	s.waitCount(50, "SELECT count(*) FROM troupe.local_work WHERE attempts > 0")
	s.write("fresh", Count{N: 1, Fail: "no"})
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE key = 'fresh' AND status = 'done'")
}

// TestAClaimOfLocalWorkHasALimitOfBytes: a writer may insert entries of 8 MiB. All entries of a claim are in memory at once, for each of the
// transactions that run at once.
func TestAClaimOfLocalWorkHasALimitOfBytes(t *testing.T) {
	t.Parallel()
	c := newClaims(t)
	c.insert(1, 20, "n", "'same'", "NULL")
	c.insert(21, 40, "n", "n::text", "NULL")
	c.exec("UPDATE troupe.local_work SET payload = convert_to(repeat('x', 3000000), 'UTF8')")
	require.Len(t, c.take(100, false), 2)
	c.exec("UPDATE troupe.local_work SET payload = NULL, headers = jsonb_build_object('h', repeat('x', 8000000))")
	require.Len(t, c.take(100, false), 1)
	c.exec("UPDATE troupe.local_work SET headers = '{}'")
	require.Len(t, c.take(100, false), 40)
}

// Entries beyond that limit are claimed next, also if no notification comes.
func TestLargeLocalWorkIsHandledInItsOrder(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	for n := range 4 {
		for _, key := range []string{"a", "b", "c"} {
			_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload)
				SELECT $1, $2, 'Count', convert_to(json_build_object('n', $3::int, 'padding', repeat('x', 3000000))::text, 'UTF8')`, s.hop.Commands(), key, n)
			require.NoError(t, err)
		}
	}
	largest := 0
	p := s.new(func(c *participant.Config) {
		c.Batch, c.Concurrency = 100, 1
		c.Hooks.BeforeHandler = func(d participant.Delivery) { largest = max(largest, d.Batch) }
	})
	participant.Handle(p, count)
	stop := s.start(p)
	s.waitCount(12, "SELECT count(*) FROM done WHERE attempt = 1")
	stop()
	require.Equal(t, 2, largest)
	s.expectLegal()
	require.Zero(t, s.count("SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS o WHERE n < before"))
}
