package repair_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/participant"
)

// localConfig makes the participant take its commands from troupe.local_work.
func localConfig(c *participant.Config) { c.Local, c.Brokers, c.Partitions = true, nil, 0 }

// write inserts commands as another service does, in its database.
func (s *stage) write(key string, bodies ...Charge) {
	s.t.Helper()
	for _, body := range bodies {
		payload, err := json.Marshal(body)
		require.NoError(s.t, err)
		s.exec("INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, $2, 'Charge', $3, $4)",
			s.hop.Commands(), key, payload, map[string]string{"ce_sagaid": "s-" + key, "idempotency_key": fmt.Sprintf("%s-%d", key, body.N)})
	}
}

// waitingLocally returns a stage on which key a of the local work failed once and has two entries behind it, and key b failed once.
// No participant is running.
func waitingLocally(t *testing.T, change ...func(*participant.Config)) *stage {
	s := newStage(t)
	s.fails("a", "ledger 7 is closed", false)
	s.fails("b", "no answer", false)
	s.exec("SELECT troupe.make_local($1, $2)", s.hop.Commands(), s.hop.String())
	s.write("a", Charge{N: 1}, Charge{N: 2}, Charge{N: 3})
	s.write("b", Charge{N: 4})
	stop := s.participant(append([]func(*participant.Config){patient, localConfig}, change...)...)
	s.waitCount(2, "SELECT count(*) FROM troupe.local_work WHERE attempts = 1 AND status = 'pending'")
	stop()
	s.waitCount(4, "SELECT count(*) FROM troupe.local_work WHERE status = 'pending'")
	return s
}

func TestLocalWorkThatWaitsIsListedWithTheHeldKeys(t *testing.T) {
	t.Parallel()
	s := waitingLocally(t)
	a := s.held("a")
	require.Equal(t, []any{"Charge", 1, 5, "transient", "ledger 7 is closed", 2, s.hop.String()},
		[]any{a.Type, a.Attempts, a.MaxAttempts, a.Class, a.Error, a.Behind, a.Group})
	require.Equal(t, s.count("SELECT min(position) FROM troupe.local_work"), int(a.Place.Offset))
	require.True(t, a.NextTry.After(*a.LastFailed))
	place, err := repair.ParsePlace(a.Place.String())
	require.NoError(t, err)
	require.Equal(t, a.Place, place)
	for want, f := range map[string]repair.HeldFilter{
		"a": {Places: []repair.Place{a.Place}}, "b": {Key: repair.Key("b"), Class: "transient", Group: s.hop.String(), Topics: []string{s.hop.Commands()}},
	} {
		keys, _, err := s.desk.Held(t.Context(), f, repair.Page{})
		require.NoError(t, err)
		require.Len(t, keys, 1)
		require.Equal(t, want, keys[0].Key.String())
	}
	found, _, err := s.desk.Find(t.Context(), a.MessageID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, repair.Held, found[0].State)
	require.Equal(t, a.Place, *found[0].Place)
	var behind string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT id::text FROM troupe.local_work WHERE key = 'a' AND attempts = 0 LIMIT 1").Scan(&behind))
	found, _, err = s.desk.Find(t.Context(), behind)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Nil(t, found[0].NextTry, "it waits behind another")
}

// TestPagesOfHeldKeysGoOnIntoLocalWork checks pages of every size over both tables.
func TestPagesOfHeldKeysGoOnIntoLocalWork(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t)
	s.exec("SELECT troupe.make_local('other', group_of) FROM unnest(ARRAY['shop.a', 'shop.b']) AS group_of")
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT 'other', 'k' || n, 'Charge', '{}' FROM generate_series(1, 3) AS n")
	s.exec(`UPDATE troupe.local_work SET attempts = 1, last_error = 'no', error_class = 'transient', next_try = now() + interval '1 hour',
		first_failed_at = now(), last_failed_at = now(), max_attempts = 5`)
	for limit := 1; limit <= 9; limit++ {
		var all []string
		for after := ""; ; {
			keys, next, err := s.desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{Limit: limit, After: after})
			require.NoError(t, err)
			require.LessOrEqual(t, len(keys), limit)
			for _, k := range keys {
				all = append(all, k.Group+" "+k.Key.String())
			}
			if after = next; next == "" {
				break
			}
		}
		slices.Sort(all)
		hop := s.hop.String()
		want := []string{hop + " a", hop + " b", "shop.a k1", "shop.a k2", "shop.a k3", "shop.b k1", "shop.b k2", "shop.b k3"}
		slices.Sort(want)
		require.Equal(t, want, all, "pages of %d", limit)
		n, err := s.desk.CountHeld(t.Context(), limit)
		require.NoError(t, err)
		require.Equal(t, min(limit, 8), n)
	}
	_, _, err := s.desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{After: "local:x"})
	require.ErrorContains(t, err, "want the cursor that the previous page returned")
	n, err := s.desk.Retry(t.Context(), repair.HeldFilter{}, ann)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.local_work WHERE next_try > clock_timestamp()"))
	require.Equal(t, 8, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'retry'"))
	_, err = s.desk.Release(t.Context(), repair.Place{Topic: "other", Partition: -1, Offset: int64(s.count("SELECT max(position) FROM troupe.local_work"))},
		repair.ReleaseConfig{By: ann})
	require.ErrorContains(t, err, "name the group")
}

func TestRetryMakesTheNextTryOfLocalWorkDue(t *testing.T) {
	t.Parallel()
	s := waitingLocally(t)
	s.exec("DELETE FROM rules WHERE key = 'a'")
	s.participant(patient, localConfig)
	n, err := s.as(grants.Operator).Retry(t.Context(), repair.HeldFilter{Key: repair.Key("a")}, ann)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'retry' AND partition = -1"))
	s.waitCount(3, "SELECT count(*) FROM charges WHERE key = 'a'")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE status = 'pending'"), "b waits on")
}

// TestAReleaseOfLocalWorkWritesTheDeadLetterOfItsParticipant compares the dead letter of one entry that is released with another's,
// whose attempts are used up.
func TestAReleaseOfLocalWorkWritesTheDeadLetterOfItsParticipant(t *testing.T) {
	t.Parallel()
	own := func(c *participant.Config) { c.Source, c.SpringHeaders = "till", true }
	s := waitingLocally(t, own)
	behind := s.heldBehind("a")
	_, err := s.as(grants.Operator).Release(t.Context(), behind, repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, repair.ErrBehind)
	a := s.held("a").Place
	r, err := s.as(grants.Operator).Release(t.Context(), a, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, 2, r.Behind)
	_, err = s.desk.Release(t.Context(), a, repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, repair.ErrGone)
	s.exec("DELETE FROM rules WHERE key = 'a'")
	s.participant(patient, localConfig, own, func(c *participant.Config) { c.Retry.Attempts = 2 })
	s.waitCount(2, "SELECT count(*) FROM charges WHERE key = 'a' AND n > 1")
	n, err := s.desk.Retry(t.Context(), repair.HeldFilter{Key: repair.Key("b")}, ann)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s.waitCount(2, openLetters)
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.local_work WHERE status = 'failed'"))

	letters := make(map[string]map[string]any)
	rows, err := s.pool.Query(t.Context(), "SELECT to_jsonb(d) FROM troupe.dead_letters AS d")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[map[string]any])
	require.NoError(t, err)
	for _, l := range all {
		key := map[bool]string{true: "a", false: "b"}[l["id"] == r.DeadLetter.String()]
		for _, differs := range []string{"id", "offset", "key", "payload", "headers", "message_id", "correlation_id", "attempts", "error",
			"cause", "created_at", "first_failed_at", "last_failed_at", "position"} {
			delete(l, differs)
		}
		letters[key] = l
	}
	require.Equal(t, letters["b"], letters["a"])
	for _, topic := range []string{s.hop.DeadLetters(), s.hop.Events()} {
		of := make(map[string][]string)
		for _, m := range s.entries(topic) {
			if topic == s.hop.Events() && string(m.Outcome) != "exhausted" {
				continue
			}
			var names []string
			for _, h := range m.Headers() {
				names = append(names, h.Key)
			}
			slices.Sort(names)
			of[string(m.Key)] = append(names, m.Source, m.Type, m.ContentType, string(m.Outcome))
			require.Equal(t, "s-"+string(m.Key), m.SagaID)
		}
		require.Len(t, of, 2)
		require.Equal(t, of["b"], of["a"])
	}
	redriven, err := s.desk.Redrive(t.Context(), repair.Filter{Key: repair.Key("a")}, quickly)
	require.NoError(t, err)
	require.Equal(t, 1, redriven.Redriven)
	s.waitCount(3, "SELECT count(*) FROM charges WHERE key = 'a'")
}

// heldBehind returns the place of a key's last entry.
func (s *stage) heldBehind(key string) (p repair.Place) {
	s.t.Helper()
	p.Partition = -1
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT topic, position FROM troupe.local_work WHERE key = $1 ORDER BY position DESC LIMIT 1", key).
		Scan(&p.Topic, &p.Offset))
	return p
}

// TestAReleaseOfLocalWorkMeetsItsParticipant releases an entry that its participant has claimed: while its handler runs, and before
// it has begun.
func TestAReleaseOfLocalWorkMeetsItsParticipant(t *testing.T) {
	t.Parallel()
	t.Run("its handler runs and succeeds", func(t *testing.T) {
		t.Parallel()
		s := waitingLocally(t)
		place := s.held("b").Place
		s.exec("DELETE FROM rules")
		_, err := s.desk.Retry(t.Context(), repair.HeldFilter{Key: repair.Key("b")}, ann)
		require.NoError(t, err)
		running, end := make(chan bool, 9), make(chan bool)
		p, err := participant.New(s.config(patient, localConfig))
		require.NoError(t, err)
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, m participant.Command[Charge]) (participant.Outcome, error) {
			running <- true
			<-end
			return charge(ctx, tx, m)
		})
		s.run(p.Run)
		<-running
		done := make(chan error, 1)
		go func() {
			_, err := s.desk.Release(context.Background(), place, repair.ReleaseConfig{By: ann})
			done <- err
		}()
		s.waitCount(1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		close(end)
		require.ErrorIs(t, <-done, repair.ErrGone)
		s.waitCount(1, "SELECT count(*) FROM charges WHERE key = 'b'")
		require.Zero(t, s.count(openLetters))
	})
	t.Run("it was claimed and has not begun", func(t *testing.T) {
		t.Parallel()
		s := waitingLocally(t)
		place := s.held("b").Place
		// The claim's transaction has ended, and the run's has not begun: the member's process is stopped between the two.
		s.exec("UPDATE troupe.local_work SET status = 'in progress', locked_at = clock_timestamp(), locked_by = 1, term = term + 1, next_try = NULL WHERE key = 'b'")
		n, err := s.desk.Retry(t.Context(), repair.HeldFilter{Key: repair.Key("b")}, ann)
		require.NoError(t, err)
		require.Zero(t, n, "it is being tried")
		r, err := s.desk.Release(t.Context(), place, repair.ReleaseConfig{By: ann})
		require.NoError(t, err)
		require.NotZero(t, r.DeadLetter)
		require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE key = 'b' AND status = 'failed' AND locked_by IS NULL"))
		s.exec("DELETE FROM rules")
		s.participant(patient, localConfig)
		_, err = s.desk.Retry(t.Context(), repair.HeldFilter{Key: repair.Key("a")}, ann)
		require.NoError(t, err)
		s.waitCount(3, "SELECT count(*) FROM charges")
		require.Zero(t, s.count("SELECT count(*) FROM charges WHERE key = 'b'"))
	})
}

// TestLocalWorkThatTookEffectIsOnlyEnded checks that an entry whose message took effect by another delivery is no dead letter.
func TestLocalWorkThatTookEffectIsOnlyEnded(t *testing.T) {
	t.Parallel()
	s := waitingLocally(t)
	k := s.held("b")
	s.exec("INSERT INTO troupe.inbox (consumer_group, message_id) VALUES ($1, $2)", s.hop.String(), k.MessageID)
	r, err := s.desk.Release(t.Context(), k.Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Zero(t, r.DeadLetter)
	require.Zero(t, s.count(openLetters))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE key = 'b' AND status = 'done'"))
}
