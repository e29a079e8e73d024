package testkit

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
)

const advanceDeadlines = `
UPDATE troupe.deadlines
SET due_at = due_at - make_interval(secs => $2::float8)
WHERE consumer_group = $1
  AND fired_at IS NULL`

const advanceExpectations = `
UPDATE troupe.expectations
SET due_at = due_at - make_interval(secs => $2::float8)
WHERE consumer_group = $1
  AND missed_at IS NULL
  AND due_at IS NOT NULL`

// A Deadline is a scheduled deadline that has not been met yet.
type Deadline struct {
	Name  string
	Scope string
	Wait  time.Duration // until it is due, by the database's clock; negative once it is
}

const selectDeadlines = `
SELECT name, scope, extract(epoch FROM due_at - clock_timestamp())::float8
FROM troupe.deadlines
WHERE consumer_group = $1
ORDER BY due_at, scope, name`

// Deadlines returns the deadlines that handlers have scheduled, the earliest first.
func (s *Stage) Deadlines() []Deadline {
	s.t.Helper()
	rows, err := s.Pool.Query(s.t.Context(), selectDeadlines, s.cfg.Participant.Group)
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Deadline, err error) {
		var wait float64
		err = row.Scan(&d.Name, &d.Scope, &wait)
		d.Wait = time.Duration(wait * float64(time.Second))
		return d, err
	})
	require.NoError(s.t, err)
	return all
}

// sendDeadlines publishes the messages of deadlines that are due, as a relay would.
func (s *Stage) sendDeadlines() {
	s.t.Helper()
	const due = "SELECT count(*) FROM troupe.deadlines WHERE consumer_group = $1 AND fired_at IS NULL AND due_at <= now()"
	s.wait("due deadlines to fire", func() error {
		var n int
		if err := s.Pool.QueryRow(s.t.Context(), due, s.cfg.Participant.Group).Scan(&n); err != nil || n == 0 {
			return err
		}
		return fmt.Errorf("%d deadlines are due", n)
	})
	s.eachEntry(func(position int64, m envelope.Message) {
		deadline := slices.ContainsFunc(m.Extra, func(h envelope.Header) bool { return h.Key == ce.HeaderDeadline })
		if m.Topic == s.Hop.Commands() && deadline && !s.fired[position] {
			s.fired[position] = true
			s.Send(m)
		}
	})
}
