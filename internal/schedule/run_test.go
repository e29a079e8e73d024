package schedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/schedule"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var by = admin.Actor{Name: "ada", Reason: "ticket 1"}

// fixture is a database with a desk. Its members start a saga by inserting a row into the table started.
type fixture struct {
	t testing.TB
	schedule.Desk
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t, schedule.Desk{Pool: testkit.Database(t)}}
	f.exec("CREATE TABLE started (saga text, key text UNIQUE, data jsonb)")
	return f
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.Pool.Exec(f.t.Context(), sql, args...)
	require.NoError(f.t, err)
}

func (f *fixture) member(sagas ...string) *schedule.Runner {
	f.t.Helper()
	out, err := outbox.New(outbox.Config{})
	require.NoError(f.t, err)
	return &schedule.Runner{
		Pool: f.Pool, Outbox: out, Log: testkit.Logger(f.t), Sagas: func() []string { return sagas },
		Start: func(ctx context.Context, tx pgx.Tx, saga, key string, data json.RawMessage) (bool, error) {
			tag, err := tx.Exec(ctx, "INSERT INTO started VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", saga, key, data)
			return tag.RowsAffected() == 0, err
		},
	}
}

func (f *fixture) set(spec schedule.Spec) schedule.Schedule {
	f.t.Helper()
	if spec.Zone == "" {
		spec.Zone = "UTC"
	}
	if spec.Cron == "" {
		spec.Cron = "* * * * *"
	}
	s, err := f.Set(f.t.Context(), spec, by)
	require.NoError(f.t, err)
	return s
}

// missed makes the occurrences of the current minute and of the n minutes before it due, and returns the first of them.
func (f *fixture) missed(name string, n int) (first time.Time) {
	f.t.Helper()
	const back = "UPDATE troupe.schedules SET next_at = date_trunc('minute', clock_timestamp()) - $2 * interval '1 minute' WHERE name = $1 RETURNING next_at"
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), back, name, n).Scan(&first))
	return first
}

func (f *fixture) run(r *schedule.Runner) {
	f.t.Helper()
	_, err := r.RunDue(f.t.Context())
	require.NoError(f.t, err)
}

func (f *fixture) show(name string) schedule.Schedule {
	f.t.Helper()
	s, _, _, err := f.Show(f.t.Context(), name)
	require.NoError(f.t, err)
	return s
}

type sent struct{ ID, Topic, Key, Type, Payload, Occurrence string }

func (f *fixture) sent() []sent {
	return rows[sent](f, `
SELECT id::text, topic, key, type, convert_from(payload, 'UTF8'), split_part(headers ->> 'ce_idempotencykey', '/', 1) FROM troupe.outbox ORDER BY position`)
}

func (f *fixture) started() []string { return column(f, "SELECT key FROM started ORDER BY key") }

func rows[T any](f *fixture, sql string) []T {
	f.t.Helper()
	found, err := f.Pool.Query(f.t.Context(), sql)
	require.NoError(f.t, err)
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[T])
	require.NoError(f.t, err)
	return all
}

func column(f *fixture, sql string) []string {
	f.t.Helper()
	found, err := f.Pool.Query(f.t.Context(), sql)
	require.NoError(f.t, err)
	all, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(f.t, err)
	return all
}

func message(name string) schedule.Spec {
	return schedule.Spec{Name: name, CatchUp: 1, Topic: "shop.report.commands", Type: "MakeReport", Data: json.RawMessage(`{"of": "sales"}`)}
}

func TestAnOccurrenceIsRunOnceByManyMembers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(message("report"))
	first := f.missed("report", 0)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	f.missed("billing", 0)
	var members sync.WaitGroup
	for range 6 {
		r := f.member("bill")
		members.Go(func() { f.run(r) })
	}
	members.Wait()
	require.Equal(t, []string{"billing@" + first.UTC().Format(time.RFC3339)}, f.started()[:1])
	got := f.sent()[0]
	require.Equal(t, sent{got.ID, "shop.report.commands", "report", "MakeReport", `{"of": "sales"}`, "report@" + first.UTC().Format(time.RFC3339)}, got)
	seen := map[string]bool{}
	for _, s := range f.sent() { // another minute may have begun
		require.False(t, seen[s.Occurrence], s.Occurrence)
		seen[s.Occurrence] = true
	}
	s := f.show("report")
	require.True(t, s.NextAt.After(first))
	require.Equal(t, s.NextAt.Add(-time.Minute).UTC(), s.LastAt.UTC())
}

// TestTheRightsOfSchedules runs a schedule as a coordinator's role, and changes it as an operator's.
func TestTheRightsOfSchedules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	role := grantstest.New(t, f.Pool, grants.Sagas)
	f.exec("GRANT INSERT ON started TO " + role.Name)
	f.set(message("report"))
	f.missed("report", 0)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	f.missed("billing", 0)
	r := f.member("bill")
	r.Pool = role.Pool()
	f.run(r)
	require.NotEmpty(t, f.sent())
	require.Empty(t, f.show("billing").Error)
	r.Start = func(context.Context, pgx.Tx, string, string, json.RawMessage) (bool, error) {
		return false, errors.New("refused")
	}
	f.missed("billing", 0)
	f.run(r)
	require.Equal(t, "refused", f.show("billing").Error)

	desk := schedule.Desk{Pool: grantstest.New(t, f.Pool, grants.SagaOperator).Pool()}
	_, err := desk.Set(t.Context(), schedule.Spec{Name: "other", Cron: "@daily", Zone: "UTC", Topic: "t", Type: "T"}, by)
	require.NoError(t, err)
	require.NoError(t, desk.Pause(t.Context(), "other", by))
	_, err = desk.Request(t.Context(), "other", by)
	require.NoError(t, err)
	_, err = desk.Resume(t.Context(), "other", by)
	require.NoError(t, err)
	require.NoError(t, desk.Delete(t.Context(), "other", by))
	viewer := schedule.Desk{Pool: grantstest.New(t, f.Pool, grants.Viewer).Pool()}
	_, _, changes, err := viewer.Show(t.Context(), "report")
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.ErrorContains(t, viewer.Pause(t.Context(), "report", by), "docs/schedules.md")
}

// TestAnOccurrenceThatIsRunAgainHasTheSameId sets next_at back, as a restore of the database does.
func TestAnOccurrenceThatIsRunAgainHasTheSameId(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill", Cron: "0 0 * * *"})
	f.set(schedule.Spec{Name: "report", CatchUp: 1, Topic: "t", Type: "T", Cron: "0 0 * * *"})
	for range 2 {
		f.exec("UPDATE troupe.schedules SET next_at = date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', last_at = NULL")
		f.run(f.member("bill"))
	}
	require.Len(t, f.started(), 1)
	got := f.sent()
	require.Len(t, got, 2)
	require.Equal(t, got[0], got[1])
	f.run(f.member("bill"))
	require.Len(t, f.sent(), 2)
}

func TestAnOccurrenceIsNotStoredHalf(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	first := f.missed("billing", 0)
	r := f.member("bill")
	ctx, cancel := context.WithCancel(t.Context())
	start := r.Start
	r.Start = func(ctx context.Context, tx pgx.Tx, saga, key string, data json.RawMessage) (bool, error) {
		existed, err := start(ctx, tx, saga, key, data)
		cancel() // before the commit
		return existed, err
	}
	_, err := r.RunDue(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, f.started())
	require.Equal(t, first.UTC(), f.show("billing").NextAt.UTC())
	require.Empty(t, f.show("billing").Error)
}

func TestAScheduleThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	f.missed("billing", 3)
	f.set(message("report"))
	f.missed("report", 0)
	r := f.member("bill")
	start := r.Start
	r.Start = func(context.Context, pgx.Tx, string, string, json.RawMessage) (bool, error) {
		return false, errors.New("it has no variable amount")
	}
	f.run(r)
	require.NotEmpty(t, f.sent())
	s := f.show("billing")
	require.Equal(t, "it has no variable amount", s.Error)
	require.Equal(t, 1, s.Tries)
	f.run(r) // retry_at is later
	require.Equal(t, 1, f.show("billing").Tries)
	r.Start = start
	f.exec("UPDATE troupe.schedules SET retry_at = 'epoch' WHERE name = 'billing'")
	f.run(r)
	require.Len(t, f.started(), 1)
	require.Empty(t, f.show("billing").Error)
	f.missed("billing", 0)
	f.exec("UPDATE troupe.schedules SET retry_at = clock_timestamp() + interval '1 year' WHERE name = 'billing'") // by a clock that was set back
	f.run(r)
	require.Zero(t, f.show("billing").Tries)
}

func TestAMemberLeavesSagasThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	f.missed("billing", 0)
	f.run(f.member("order"))
	require.Empty(t, f.started())
	require.Empty(t, f.show("billing").Error)
	f.run(f.member("order", "bill"))
	require.NotEmpty(t, f.started())
}

func TestMissedOccurrences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ catchUp, missed, want int }{{0, 5, 1}, {1, 5, 1}, {3, 5, 3}, {100, 5, 6}} {
		f := newFixture(t)
		spec := message("report")
		spec.CatchUp = c.catchUp
		f.set(spec)
		begun := time.Now()
		f.missed("report", c.missed)
		f.run(f.member())
		got := f.sent()
		more := int(time.Since(begun)/time.Minute) + 1 // the next minute may have begun
		require.GreaterOrEqual(t, len(got), c.want)
		require.LessOrEqual(t, len(got), c.want+more)
		for i := range got[1:] {
			require.Less(t, got[i].Occurrence, got[i+1].Occurrence)
		}
	}
}

func TestAnOccurrenceThatIsLateAndNotCaughtUpIsSkipped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spec := message("report")
	spec.CatchUp, spec.Cron = 0, "0 0 1 1 *"
	f.set(spec)
	next := f.show("report").NextAt
	f.exec("UPDATE troupe.schedules SET next_at = next_at - interval '1 year'")
	if next.YearDay() != 1 || f.show("report").NextAt.YearDay() != 1 {
		t.Fatal("not January 1")
	}
	f.run(f.member())
	require.Empty(t, f.sent())
	require.Equal(t, next.UTC(), f.show("report").NextAt.UTC())
}

func TestOccurrencesDuringAPauseAreSkipped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spec := message("report")
	spec.CatchUp = 100
	f.set(spec)
	require.NoError(t, f.Pause(t.Context(), "report", by))
	require.ErrorContains(t, f.Pause(t.Context(), "report", by), "already paused")
	f.missed("report", 5)
	f.run(f.member())
	require.Empty(t, f.sent())

	occurrence, err := f.Request(t.Context(), "report", by) // an operator may, although it is paused
	require.NoError(t, err)
	_, err = f.Request(t.Context(), "report", by)
	require.ErrorContains(t, err, "not run yet: see")
	f.run(f.member())
	require.Len(t, f.sent(), 1)
	require.Equal(t, occurrence, f.sent()[0].Occurrence)
	require.Nil(t, f.show("report").LastAt)

	next, err := f.Resume(t.Context(), "report", by)
	require.NoError(t, err)
	require.True(t, next.After(time.Now().Add(-time.Minute)))
	require.Equal(t, next.UTC(), f.show("report").NextAt.UTC())
	_, err = f.Resume(t.Context(), "report", by)
	require.ErrorContains(t, err, "not paused")
	require.NoError(t, f.Delete(t.Context(), "report", by))
	_, _, _, err = f.Show(t.Context(), "report")
	require.ErrorIs(t, err, schedule.ErrNotFound)
	require.Equal(t, []string{"set", "pause", "run", "resume", "delete"}, column(f, "SELECT action FROM troupe.schedule_changes ORDER BY position"))
}

func TestAScheduleThatIsChangedWhileItIsDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spec := schedule.Spec{Name: "report", CatchUp: 1, Topic: "t", Type: "Old", Cron: "0 0 1 1 *"}
	f.set(spec)
	f.exec("UPDATE troupe.schedules SET next_at = next_at - interval '1 year'")
	due := f.show("report").NextAt
	spec.Type = "New"
	require.Equal(t, due, f.set(spec).NextAt) // still due, and runs with the new type
	f.run(f.member())
	require.Len(t, f.sent(), 1)
	require.Equal(t, "New", f.sent()[0].Type)

	f.exec("UPDATE troupe.schedules SET next_at = next_at - interval '1 year'")
	spec.Zone = "Asia/Tokyo" // so the next occurrence is the first one after now
	next := f.set(spec).NextAt
	require.True(t, next.After(time.Now()))
	f.run(f.member())
	require.Len(t, f.sent(), 1)

	// The clock was set back after the last occurrence: a change does not run it a second time.
	f.exec("UPDATE troupe.schedules SET last_at = $1", next)
	spec.Cron = "0 0 1 1,7 *"
	require.True(t, f.set(spec).NextAt.After(next))
}

// TestASagaThatIsLockedStopsNoOtherSchedule: another session has the saga of an occurrence locked. There is one member.
func TestASagaThatIsLockedStopsNoOtherSchedule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	first := f.missed("billing", 1)
	f.set(message("report"))
	f.missed("report", 0)
	tx, err := f.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "INSERT INTO started SELECT 'bill', 'billing@' || to_char(at, 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "+
		"FROM generate_series($1::timestamptz, $1 + interval '1 hour', '1 minute') AS at", first.UTC())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r := f.member("bill")
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	testkit.Wait(t, "the other schedule", func() (bool, error) { return len(f.sent()) > 0, nil })
	testkit.Wait(t, "the error", func() (bool, error) { return f.show("billing").Error != "", nil })
	require.NoError(t, tx.Rollback(t.Context()))
	testkit.Wait(t, "the saga", func() (bool, error) { return len(f.started()) > 0, nil })
}

// TestAFrozenMemberKeepsNoSchedule: a member stops within its transaction, and its connection stays open. Another one runs the occurrence.
func TestAFrozenMemberKeepsNoSchedule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(schedule.Spec{Name: "billing", CatchUp: 1, Saga: "bill"})
	f.missed("billing", 0)
	frozen, r := f.member("bill"), f.member("bill")
	frozen.Limit = time.Second
	locked, thaw := make(chan struct{}), make(chan struct{})
	frozen.Start = func(context.Context, pgx.Tx, string, string, json.RawMessage) (bool, error) {
		close(locked)
		<-thaw
		return false, errors.New("it goes on too late")
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _, _ = frozen.RunDue(ctx) })
	defer running.Wait()
	defer close(thaw)
	defer cancel() // or it would run the occurrence of the next minute
	<-locked
	testkit.Wait(t, "the other member", func() (bool, error) {
		_, err := r.RunDue(t.Context())
		return len(f.started()) > 0, err
	})
}

// A silentConn loses the bytes that are written to it, as if the server's machine were gone.
type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Write(b []byte) (int, error) {
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestADatabaseThatIsSilentIsTriedAgain: no answer comes on the connections that the pool has.
func TestADatabaseThatIsSilentIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(message("report"))
	f.missed("report", 0)
	var silent atomic.Bool
	config := f.Pool.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return silentConn{conn, &silent}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pool.Ping(t.Context()))
	r := f.member()
	r.Pool, r.Limit = pool, time.Second
	silent.Store(true)
	_, err = r.RunDue(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	silent.Store(false)
	testkit.Wait(t, "the occurrence", func() (bool, error) {
		_, err := r.RunDue(t.Context())
		return len(f.sent()) > 0, err
	})
}

// TestTwoServicesHaveSchedulesOfOneName: a hop takes a command with the idempotency key of another one for its repetition.
func TestTwoServicesHaveSchedulesOfOneName(t *testing.T) {
	t.Parallel()
	a, b := newFixture(t), newFixture(t)
	var keys []string
	for _, f := range []*fixture{a, b} {
		spec := message("report")
		spec.Cron = "0 0 1 1 *"
		f.set(spec)
		f.exec("UPDATE troupe.schedules SET next_at = '2026-01-01 00:00Z'")
		f.run(f.member())
		require.Len(t, f.sent(), 1)
		keys = append(keys, column(f, "SELECT headers ->> 'ce_idempotencykey' FROM troupe.outbox")...)
	}
	require.NotEqual(t, keys[0], keys[1])
}

// TestTheRulesOfAZoneHaveChanged: next_at was computed by other rules, an hour off.
func TestTheRulesOfAZoneHaveChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		off  time.Duration // of the next occurrence by the rules of now
		runs int
	}{
		"it is earlier by the rules of now": {-time.Hour, 1},
		"it is later by the rules of now":   {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var next time.Time
			const today = "SELECT date_trunc('minute', clock_timestamp())"
			require.NoError(t, f.Pool.QueryRow(t.Context(), today).Scan(&next))
			at := next.Add(c.off).UTC()
			spec := message("report")
			spec.Cron = fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())
			f.set(spec)
			f.exec("UPDATE troupe.schedules SET next_at = $1", next)
			f.run(f.member())
			require.Len(t, f.sent(), c.runs)
			want := at
			for !want.After(next) {
				want = want.Add(24 * time.Hour)
			}
			require.Equal(t, want, f.show("report").NextAt.UTC())
		})
	}
}

func TestLimitsOfSchedules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for text, spec := range map[string]schedule.Spec{
		"name":        {Name: "A", Topic: "t", Type: "T"},
		"catch-up":    {Name: "a", Topic: "t", Type: "T", CatchUp: 101},
		"want either": {Name: "a"},
		"no key":      {Name: "a", Saga: "s", Key: "k"},
		"topic":       {Name: "a", Topic: "t t", Type: "T"},
		"type":        {Name: "a", Topic: "t"},
		"object":      {Name: "a", Saga: "s", Data: json.RawMessage(`[1]`)},
		"NUL":         {Name: "a", Saga: "s", Data: json.RawMessage(`{"a": "\u0000"}`)},
		"at most":     {Name: "a", Saga: "s", Data: json.RawMessage(`{"a": "` + string(make([]byte, 70_000)) + `"}`)},
	} {
		spec.Cron, spec.Zone = "* * * * *", "UTC"
		_, err := f.Set(t.Context(), spec, by)
		require.ErrorContains(t, err, text)
	}
	_, err := f.Set(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * *", Zone: "UTC", Topic: "t", Type: "T"}, admin.Actor{Name: "ada"})
	require.ErrorContains(t, err, "reason")
	f.exec(`INSERT INTO troupe.schedules (name, cron, zone, topic, type, next_at) SELECT 's-' || i, '* * * * *', 'UTC', 't', 'T', 'epoch' FROM generate_series(1, 1000) AS i`)
	_, err = f.Set(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * *", Zone: "UTC", Topic: "t", Type: "T"}, by)
	require.ErrorContains(t, err, "at most 1000")
}

// TestRunWaitsForTheNextOccurrence has a member run before the occurrence is due.
func TestRunWaitsForTheNextOccurrence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(message("report"))
	f.exec("UPDATE troupe.schedules SET next_at = clock_timestamp() + interval '300 milliseconds', cron = '* * * * *'")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r := f.member()
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	testkit.Wait(t, "the schedule to move on", func() (bool, error) {
		return f.show("report").NextAt.After(time.Now()), nil
	})
}

// TestHowLateAnOccurrenceBegan is reported by the database's clock, after the commit. An operator's request is not late.
func TestHowLateAnOccurrenceBegan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spec := message("report")
	spec.Cron = "0 0 1 1 *"
	f.set(spec)
	var began []schedule.Began
	r := f.member()
	r.Began = func(b schedule.Began) {
		require.Len(t, f.sent(), len(began)+1)
		began = append(began, b)
	}
	const back = "UPDATE troupe.schedules SET next_at = date_trunc('year', clock_timestamp(), 'UTC') RETURNING next_at, clock_timestamp()"
	var at, before time.Time
	require.NoError(t, f.Pool.QueryRow(t.Context(), back).Scan(&at, &before))
	f.run(r)
	var after time.Time
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&after))
	require.Len(t, began, 1)
	require.Equal(t, "report", began[0].Schedule)
	require.True(t, at.Equal(began[0].At))
	require.GreaterOrEqual(t, began[0].Late, before.Sub(at))
	require.LessOrEqual(t, began[0].Late, after.Sub(at))

	f.exec("UPDATE troupe.schedules SET requested_at = clock_timestamp() - interval '1 hour'")
	f.run(r)
	require.Len(t, began, 2)
	require.Zero(t, began[1].Late)
}

// The roles of a coordinator and of an operator may write the times of a schedule. A time that a program cannot read would stop all schedules
// of the database, and the list of them.
func TestNoRoleGivesAScheduleATimeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(message("other"))
	f.set(message("report"))
	f.missed("report", 0)
	for part, columns := range map[grants.Part][]string{
		grants.Sagas:        {"next_at", "last_at", "ran_at", "requested_at", "retry_at"},
		grants.SagaOperator: {"next_at", "last_at", "ran_at", "requested_at", "retry_at", "paused_at", "set_at"},
	} {
		forger := grantstest.New(t, f.Pool, part).Pool()
		for _, column := range columns {
			for _, at := range []string{"infinity", "-infinity", "10000-01-01", "4000-01-01 BC"} {
				_, err := forger.Exec(t.Context(), "UPDATE troupe.schedules SET "+column+" = $1::text::timestamptz WHERE name = 'other'", at)
				require.ErrorContains(t, err, "check constraint", "%s: %s = %s", part, column, at)
			}
		}
		_, err := forger.Exec(t.Context(), "UPDATE troupe.schedules SET error = repeat('x', 100000000)")
		require.ErrorContains(t, err, "check constraint", "the list of schedules is read into memory")
		_, err = forger.Exec(t.Context(), "UPDATE troupe.schedules SET tries = 2147483647 WHERE name = 'other'")
		require.NoError(t, err)
	}
	f.missed("other", 0)
	f.exec("UPDATE troupe.schedules SET cron = 'none' WHERE name = 'other'") // each run fails, and tries is counted up
	f.run(f.member())
	require.Len(t, f.sent(), 1)
	all, err := f.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
}
