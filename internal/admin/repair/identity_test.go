package repair_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

// In TestReleaseAndFindTellTwoSourcesApart two sources have sent a message 1. One of these is held, the other has taken effect,
// and a third was handled by a version that stored no sources.
func TestReleaseAndFindTellTwoSourcesApart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("a", "ledger 7 is closed", false)
	numbered := func(source, key, id string) envelope.Message {
		m := s.command(key, Charge{N: 1})
		m.Source, m.ID, m.IdempotencyKey = source, id, ""
		return m
	}
	held, handled, former := numbered("shop", "a", "1"), numbered("billing", "b", "1"), numbered("shop", "a", "2")
	s.send(held, handled, former)
	stop := s.participant(patient)
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE key = 'a'")
	s.waitCount(1, "SELECT count(*) FROM charges")
	stop()
	states := func(id string) (all []string) {
		found, _, err := s.desk.Find(t.Context(), id)
		require.NoError(t, err)
		for _, f := range found {
			all = append(all, string(f.State)+" "+f.Identity)
		}
		return all
	}
	require.ElementsMatch(t, []string{"held " + held.Identity(), "handled " + handled.Identity()}, states("1"))

	r, err := s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.NotEqual(t, uuid.Nil, r.DeadLetter, "another source's message took effect, not this one")
	require.ElementsMatch(t, []string{"dead letter " + held.Identity(), "handled " + handled.Identity()}, states("1"))

	s.exec("INSERT INTO troupe.inbox (consumer_group, message_id) VALUES ($1, '2')", s.hop.String())
	s.exec("UPDATE troupe.held SET attempts = 1, next_try = now(), last_error = 'e', error_class = 'transient', first_failed_at = now(), last_failed_at = now()")
	r, err = s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, r.DeadLetter, "a version before has handled it")
	require.Equal(t, []string{"handled 2"}, states("2"))
}

// TestFindReadsAnIndexForIDsWithSources checks the plan, since the inbox may contain millions of them.
func TestFindReadsAnIndexForIDsWithSources(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.inbox (consumer_group, message_id) SELECT 'g', n || '~0123456789abcdef' FROM generate_series(1, 20000) n`)
	s.exec("ANALYZE troupe.inbox")
	found, _, err := s.desk.Find(t.Context(), "17")
	require.NoError(t, err)
	require.Len(t, found, 1)
	var plan string
	require.NoError(t, s.pool.QueryRow(t.Context(), `
		EXPLAIN (FORMAT json) SELECT FROM troupe.inbox WHERE left(message_id, -17) = '17' AND left(right(message_id, 17), 1) = '~'`).Scan(&plan))
	require.Contains(t, plan, "inbox_sources")
}

// TestAMessageWithoutAnIDIsFoundByItsPlace finds one wherever it is, with and without the hash of its record. Released, it is not
// handled when it is delivered again.
func TestAMessageWithoutAnIDIsFoundByItsPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("a", "ledger 7 is closed", false)
	for _, key := range []string{"a", "b"} {
		m := s.command(key, Charge{N: 1})
		m.ID, m.CorrelationID, m.IdempotencyKey = "", "", ""
		s.send(m)
	}
	stop := s.participant(patient)
	s.waitCount(1, "SELECT count(*) FROM troupe.held")
	s.waitCount(1, "SELECT count(*) FROM charges")
	stop()
	handled := s.entries(s.hop.Events())[0].CausationID
	expect := func(id string, state repair.State) {
		t.Helper()
		for _, id := range []string{id, id[:len(id)-17]} {
			found, _, err := s.desk.Find(t.Context(), id)
			require.NoError(t, err)
			require.Len(t, found, 1, id)
			require.Equal(t, state, found[0].State)
		}
	}
	k := s.held("a")
	require.Regexp(t, "^[0-9a-f-]{36}/[01]/[01]~[0-9a-f]{16}$", k.MessageID)
	expect(handled, repair.Handled)
	expect(k.MessageID, repair.Held)
	_, err := s.desk.Release(t.Context(), k.Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	expect(k.MessageID, repair.Dead)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.inbox WHERE message_id = $1", k.MessageID))
}
