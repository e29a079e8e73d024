package modeltest_test

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const (
	// stallLimit limits the time without a change while some message has not ended, with a healthy member.
	stallLimit = 3 * time.Minute
	// settleLimit limits the time until all messages have ended.
	settleLimit = 9 * time.Minute
)

// identity is the identity of a message's life in an inbox.
type identity struct {
	group, id string
	redrive   int
}

// state counts the messages and rows that have not ended.
type state struct {
	open      []int // numbers of messages whose last life has not ended
	held      int
	outbox    int
	deadlines int
	local     int
	attempts  int // of the held messages, to see progress
}

func (s state) done() bool { return len(s.open)+s.held+s.outbox+s.deadlines+s.local == 0 }

func (s state) String() string {
	open := s.open
	if len(open) > 20 {
		open = open[:20]
	}
	return fmt.Sprintf("%d messages open (%v), held %d, outbox %d, deadlines %d, local work %d, attempts %d",
		len(s.open), open, s.held, s.outbox, s.deadlines, s.local, s.attempts)
}

// redrivenLives counts the redrives of each message.
const redrivenLives = "SELECT consumer_group, message_id, count(*) FROM troupe.dead_letters WHERE status = 'redriven' GROUP BY 1, 2"

// groupsOf returns the groups that handle m.
func (h *history) groupsOf(m message) []string {
	all := h.groups()
	if m.Kind == kindHappened && h.audit {
		return all
	}
	return all[:1]
}

// look reads the state, as of one moment.
func (h *history) look() (s state) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	require.NoError(h.t, pgx.BeginTxFunc(h.ctx, h.pool, snapshot, func(tx pgx.Tx) (err error) {
		s, err = h.read(tx)
		return err
	}))
	return s
}

func (h *history) read(tx pgx.Tx) (s state, err error) {
	err = tx.QueryRow(h.ctx, `
		SELECT (SELECT count(*) FROM troupe.held), (SELECT coalesce(sum(attempts), 0) FROM troupe.held),
		       (SELECT count(*) FROM troupe.outbox), (SELECT count(*) FROM troupe.deadlines),
		       (SELECT count(*) FROM troupe.local_work WHERE status IN ('pending', 'in progress'))`,
	).Scan(&s.held, &s.attempts, &s.outbox, &s.deadlines, &s.local)
	if err != nil {
		return s, err
	}
	lives := func(sql string) (map[identity]int, error) {
		rows, err := tx.Query(h.ctx, sql)
		if err != nil {
			return nil, err
		}
		all := make(map[identity]int)
		var i identity
		_, err = pgx.ForEachRow(rows, []any{&i.group, &i.id, &i.redrive}, func() error {
			life := i.redrive
			i.redrive = 0
			all[i] = max(all[i], life+1)
			return nil
		})
		return all, err
	}
	ended, err := lives(`
		SELECT consumer_group, message_id, redrive FROM troupe.inbox
		UNION ALL
		SELECT consumer_group, id::text, redrive FROM troupe.inbox_recent`)
	if err != nil {
		return s, err
	}
	redriven, err := lives(redrivenLives)
	if err != nil {
		return s, err
	}
	for _, m := range h.sent {
		for _, group := range h.groupsOf(m) {
			i := identity{group, h.ids[m.N], 0}
			last := max(redriven[i], 1)
			if ended[i] < last && h.ended0[m.N] < last {
				s.open = append(s.open, m.N)
				break
			}
		}
	}
	return s, nil
}

func (h *history) tryRelay() {
	if h.p.Setup.NoRelay {
		return
	}
	h.mustRelay()
}

func (h *history) mustRelay() {
	if err := h.relay(); err != nil {
		h.fail("relay: %v", err)
	}
}

// settle ends the faults and waits until all messages have ended. It fails if nothing changes any more before that.
func (h *history) settle() {
	h.thaw()
	h.stopOlder()
	began := time.Now()
	changed, last := began, ""
	within(10*time.Minute, func() bool {
		h.staff()
		h.thaw()
		h.tryRelay()
		s := h.look()
		if h.p.Setup.NoRelay {
			s.outbox = 0
		}
		if s.done() {
			return true
		}
		now := time.Now()
		if text := s.String(); text != last {
			changed, last = now, text
		}
		switch {
		case now.Sub(changed) > stallLimit:
			h.fail("nothing changes any more: %s", s)
		case now.Sub(began) > settleLimit:
			h.fail("not at an end after %s: %s", settleLimit, s)
		}
		return false
	})
	if h.both {
		h.both = false
		h.stopKind(false)
	}
}
