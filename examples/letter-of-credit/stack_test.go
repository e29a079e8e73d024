package letterofcredit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The messages, as the services that send or receive them know them.
type (
	ApplicationSubmitted struct {
		ApplicationID string `json:"application_id"`
		ApplicantID   string `json:"applicant_id"`
		ProductID     string `json:"product_id"`
		AmountCents   int64  `json:"amount_cents"`
	}
	ProductValueAssessed struct {
		Favourable bool `json:"favourable"`
	}
	ProductLegalityAssessed struct {
		ProductID  string `json:"product_id"`
		Favourable bool   `json:"favourable"`
	}
	ApplicantCreditAssessed struct {
		ApplicantID string `json:"applicant_id"`
		Favourable  bool   `json:"favourable"`
	}
	ApproveApplication struct {
		ApplicationID string `json:"application_id"`
	}
	ApplicationApproved struct {
		ApplicationID string `json:"application_id"`
	}
	ApprovalRefused struct {
		Reason string `json:"reason"`
	}
	ManualApprovalNeeded struct {
		ApplicationID string `json:"application_id"`
		Reason        string `json:"reason"`
	}
	ReminderDue struct {
		ApplicationID string `json:"application_id"`
	}
)

const applications = `
CREATE TABLE applications (
  id       text PRIMARY KEY,
  cents    bigint NOT NULL,
  status   text NOT NULL DEFAULT 'submitted',
  approved integer NOT NULL DEFAULT 0, -- how often
  by_hand  text NOT NULL DEFAULT '',   -- why
  reminded integer NOT NULL DEFAULT 0  -- how often
)`

// stack is the application's service, the desk with the two sagas, and the assessors: three databases, each with a relay,
// and a broker.
type stack struct {
	t                           testing.TB
	flow                        string
	applications, desk, outside *pgxpool.Pool
	out                         *outbox.Outbox
}

// newStack reminds after so long.
func newStack(t testing.TB, patience time.Duration) *stack {
	out, err := outbox.New(outbox.Config{Source: "letter-of-credit"})
	require.NoError(t, err)
	s := &stack{
		t: t, flow: testkit.Flow(t), out: out,
		applications: testkit.Database(t), desk: testkit.Database(t), outside: testkit.Database(t),
	}
	_, err = s.applications.Exec(t.Context(), applications)
	require.NoError(t, err)
	s.serveApplications()
	s.serveSagas(patience)
	s.relay(s.outside, "assessors")
	return s
}

func (s *stack) hop(name string) topics.Hop { return topics.MustHop(s.flow, name) }

func (s *stack) serveApplications() {
	p := s.participant("application", s.applications)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ApproveApplication]) (participant.Outcome, error) {
		tag, err := tx.Exec(ctx, "UPDATE applications SET status = 'approved', approved = approved + 1 WHERE id = $1 AND status = 'submitted'",
			c.Body.ApplicationID)
		if err == nil && tag.RowsAffected() == 0 {
			return participant.Refuse(ApprovalRefused{Reason: "it was decided before"}), nil
		}
		return participant.Succeed(ApplicationApproved(c.Body)), err
	})
	participant.On(p, s.hop("desk"), func(ctx context.Context, tx pgx.Tx, e participant.Event[ManualApprovalNeeded]) error {
		_, err := tx.Exec(ctx, "UPDATE applications SET by_hand = $2 WHERE id = $1", e.Body.ApplicationID, e.Body.Reason)
		return err
	})
	participant.On(p, s.hop("desk"), func(ctx context.Context, tx pgx.Tx, e participant.Event[ReminderDue]) error {
		_, err := tx.Exec(ctx, "UPDATE applications SET reminded = reminded + 1 WHERE id = $1", e.Body.ApplicationID)
		return err
	})
	s.run(p.Run)
	s.relay(s.applications, "application")
}

func (s *stack) serveSagas(patience time.Duration) {
	approval, reminder := definitions(s.t)
	sooner := reminder.Spec()
	sooner.Deadlines = []saga.Deadline{sooner.Deadlines[0]}
	sooner.Deadlines[0].After = saga.Duration(patience)
	reminder, err := saga.Define(sooner)
	require.NoError(s.t, err)
	p := s.participant("desk", s.desk)
	_, err = coordinator.New(s.t.Context(), coordinator.Config{
		Participant: p, Pool: s.desk, Definitions: []*saga.Definition{approval, reminder}, Log: testkit.Logger(s.t),
	})
	require.NoError(s.t, err)
	s.run(p.Run)
	s.relay(s.desk, "desk")
}

func (s *stack) participant(hop string, pool *pgxpool.Pool) *participant.Participant {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: testkit.Kafka(s.t), Hop: s.hop(hop), Partitions: 4, Log: testkit.Logger(s.t),
	})
	require.NoError(s.t, err)
	return p
}

func (s *stack) relay(pool *pgxpool.Pool, service string) {
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: pool, Brokers: testkit.Kafka(s.t), Service: service, Log: testkit.Logger(s.t)})
	require.NoError(s.t, err)
	s.run(r.Run)
}

// run goes on until the test ends.
func (s *stack) run(do func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := do(ctx); err != nil {
			s.t.Errorf("it ended: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); running.Wait() })
}

// publish writes an event of a hop to a service's outbox, in a transaction of its own.
func (s *stack) publish(pool *pgxpool.Pool, hop, key string, body any) error {
	return pgx.BeginFunc(s.t.Context(), pool, func(tx pgx.Tx) error {
		return s.out.Write(s.t.Context(), tx, outbox.Entry{Topic: s.hop(hop).Events(), Key: key, Body: body})
	})
}

// submit files an application in its service: the row and the event in one transaction.
func (s *stack) submit(a ApplicationSubmitted) error {
	ctx := s.t.Context()
	return pgx.BeginFunc(ctx, s.applications, func(tx pgx.Tx) error {
		const insert = "INSERT INTO applications (id, cents) VALUES ($1, $2)"
		if _, err := tx.Exec(ctx, insert, a.ApplicationID, a.AmountCents); err != nil {
			return err
		}
		return s.out.Write(ctx, tx, outbox.Entry{Topic: s.hop("application").Events(), Key: a.ApplicationID, Body: a})
	})
}

// assess publishes the three assessments of one application, in any order.
func (s *stack) assess(id string, value, legality, credit bool) error {
	all := []func() error{
		func() error { return s.publish(s.outside, "product", id, ProductValueAssessed{value}) },
		func() error {
			return s.publish(s.outside, "legal", "p-"+id, ProductLegalityAssessed{"p-" + id, legality})
		},
		func() error {
			return s.publish(s.outside, "credit", "c-"+id, ApplicantCreditAssessed{"c-" + id, credit})
		},
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, publish := range all {
		if err := publish(); err != nil {
			return err
		}
	}
	return nil
}

// wait is until a query counts so many.
func (s *stack) wait(pool *pgxpool.Pool, what string, want int, query string, args ...any) {
	s.t.Helper()
	testkit.Wait(s.t, what, func() (bool, error) {
		var n int
		err := pool.QueryRow(s.t.Context(), query, args...).Scan(&n)
		if err == nil && n != want {
			err = fmt.Errorf("there are %d of %d", n, want)
		}
		return err == nil, err
	})
}

func (s *stack) waitForSagas(status string, want int) {
	s.t.Helper()
	s.wait(s.desk, status+" sagas", want, "SELECT count(*) FROM troupe.sagas WHERE saga || ' ' || status = $1", status)
}

// Four applications, as README.md shows them.
func TestFourApplicationsOnTheStack(t *testing.T) {
	t.Parallel()
	s := newStack(t, 200*time.Millisecond)
	for id, cents := range map[string]int64{"a-1": 9_999_99, "a-2": 10_000_00, "a-3": 500_00, "a-4": 500_00} {
		require.NoError(t, s.submit(ApplicationSubmitted{id, "c-" + id, "p-" + id, cents}))
	}
	require.NoError(t, s.assess("a-1", true, true, true))
	require.NoError(t, s.assess("a-2", true, true, true))
	require.NoError(t, s.assess("a-3", true, true, false))
	s.waitForSagas("approval completed", 3)
	s.waitForSagas("approval running", 1) // a-4 has no assessment
	s.wait(s.applications, "what follows", 4, `
SELECT count(*) FROM applications
WHERE id = 'a-1' AND approved = 1 OR id <> 'a-1' AND reminded = 1 AND (by_hand <> '') = (id <> 'a-4')`)

	rows, err := s.applications.Query(t.Context(), `
SELECT rpad(id, 11) || lpad(to_char(cents / 100.0, 'FM99,990.00'), 10) || '  ' || rpad(status, 11)
  || rpad(coalesce(nullif(by_hand, ''), '-'), 20) || CASE WHEN approved > 0 THEN '-' ELSE reminded::text END
FROM applications
ORDER BY id`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	table := "application       USD  status     by hand, because    reminded\n" + strings.Join(lines, "\n") + "\n"
	t.Logf("\n%s", table)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), table, "README.md shows another run")
}

// D11 under concurrency: every order of arrival, many at once, and each application is approved once.
func TestManyApplicationsAtOnceAreApprovedOnceEach(t *testing.T) {
	t.Parallel()
	const n = 60
	s := newStack(t, time.Hour)
	var writers sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		id := fmt.Sprint("a-", i)
		writers.Go(func() {
			do := []func() error{
				func() error { return s.submit(ApplicationSubmitted{id, "c-" + id, "p-" + id, 100}) },
				func() error { return s.assess(id, true, true, true) },
			}
			if rand.IntN(2) == 0 { // the assessments come first
				do[0], do[1] = do[1], do[0]
			}
			for _, d := range do {
				if errs[i] == nil {
					errs[i] = d()
				}
			}
		})
	}
	writers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	s.waitForSagas("approval completed", n)
	s.waitForSagas("reminder completed", n)
	s.wait(s.applications, "applications approved once", n, "SELECT count(*) FROM applications WHERE approved = 1 AND by_hand = ''")
	s.wait(s.desk, "joins", n, "SELECT count(*) FROM troupe.saga_log WHERE what = 'StepStarted' AND step = 'approve'")
	s.wait(s.desk, "deadlines left", 0, "SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NULL")
}
