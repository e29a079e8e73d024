package repair_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// patient makes a held key wait so long that only an operator can make it continue.
func patient(c *participant.Config) {
	c.Immediate = -1
	c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 5, NoJitter: true}
}

// waiting returns a stage on which key a failed once and has two messages behind it, and key b failed once. No participant is
// running.
func waiting(t *testing.T) (s *stage, sent []envelope.Message) {
	s = newStage(t)
	s.fails("a", "ledger 7 is closed", false)
	s.fails("b", "no answer", false)
	stop := s.participant(patient)
	sent = []envelope.Message{s.command("a", Charge{N: 1}), s.command("a", Charge{N: 2}), s.command("a", Charge{N: 3}), s.command("b", Charge{N: 4})}
	sent[0].SagaID, sent[0].IdempotencyKey = "s-1", "i-1"
	s.send(sent...)
	s.waitCount(4, "SELECT count(*) FROM troupe.held")
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	stop()
	return s, sent
}

func TestHeldKeysAreListedByTheirHeads(t *testing.T) {
	t.Parallel()
	s, sent := waiting(t)
	keys, next, err := s.desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, keys, 2)
	byKey := map[string]repair.HeldKey{keys[0].Key.String(): keys[0], keys[1].Key.String(): keys[1]}
	a := byKey["a"]
	require.Equal(t, []any{sent[0].ID, "Charge", 1, 5, "transient", "ledger 7 is closed", 2},
		[]any{a.MessageID, a.Type, a.Attempts, a.MaxAttempts, a.Class, a.Error, a.Behind})
	require.True(t, a.NextTry.After(*a.LastFailed))
	require.Zero(t, byKey["b"].Behind)
	again, err := repair.ParsePlace(a.Place.String())
	require.NoError(t, err)
	require.Equal(t, a.Place, again)

	for want, f := range map[string]repair.HeldFilter{
		"a": {Places: []repair.Place{a.Place}}, "b": {Key: repair.Key("b"), Class: "transient", Group: s.hop.String(), Topics: []string{s.hop.Commands()}},
	} {
		keys, _, err := s.desk.Held(t.Context(), f, repair.Page{})
		require.NoError(t, err)
		require.Len(t, keys, 1)
		require.Equal(t, want, keys[0].Key.String())
	}
	for limit, want := range map[int]int{1: 1, 2: 2, 100: 2} {
		n, err := s.desk.CountHeld(t.Context(), limit)
		require.NoError(t, err)
		require.Equal(t, want, n, "up to %d", limit)
	}
	first, next, err := s.desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{Limit: 1})
	require.NoError(t, err)
	second, end, err := s.desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{Limit: 1, After: next})
	require.NoError(t, err)
	require.Empty(t, end)
	require.ElementsMatch(t, []string{"a", "b"}, []string{first[0].Key.String(), second[0].Key.String()})

	found, _, err := s.desk.Find(t.Context(), sent[1].ID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, repair.Held, found[0].State)
	require.Nil(t, found[0].NextTry, "it waits behind another")
	for _, text := range []string{"", "t", "t/1", "t/x/1", "t/1/-1", "/1/1", "t/1/2/3"} {
		_, err := repair.ParsePlace(text)
		require.Error(t, err, text)
	}
	_, err = repair.ParsePlace("t/-2/7")
	require.Error(t, err)
}

// TestRetryMakesTheNextTryDue checks that the member that runs the hop next tries at once.
func TestRetryMakesTheNextTryDue(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t)
	listen := s.listen("troupe_held")
	n, err := s.desk.Retry(t.Context(), repair.HeldFilter{Key: repair.Key("a")}, admin.Actor{Name: "ann"})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, s.hop.String(), listen())
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'retry' AND dead_letter_id IS NULL"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.held WHERE next_try <= clock_timestamp()"))
	s.exec("DELETE FROM rules WHERE key = 'a'")
	s.participant(patient)
	s.waitCount(3, "SELECT count(*) FROM charges WHERE key = 'a'")
	s.waitCount(1, "SELECT count(*) FROM troupe.held")

	// a key that is being tried is skipped
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "DELETE FROM troupe.held")
	require.NoError(t, err)
	n, err = s.desk.Retry(t.Context(), repair.HeldFilter{}, ann)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, tx.Rollback(t.Context()))
}

// TestReleaseMakesTheHeadADeadLetterAndTheKeyGoesOn compares the result with a dead letter that a participant writes when the
// attempts are used up.
func TestReleaseMakesTheHeadADeadLetterAndTheKeyGoesOn(t *testing.T) {
	t.Parallel()
	s, sent := waiting(t)
	head := s.held("a")
	_, err := s.desk.Release(t.Context(), s.heldPlace(sent[1]), repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, repair.ErrBehind)
	require.ErrorContains(t, err, head.Place.String())

	listen := s.listen("troupe_held")
	r, err := s.desk.Release(t.Context(), head.Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, 2, r.Behind)
	require.Equal(t, s.hop.String(), listen())
	_, err = s.desk.Release(t.Context(), head.Place, repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, repair.ErrGone)
	l, err := s.desk.Show(t.Context(), r.DeadLetter)
	require.NoError(t, err)
	require.Equal(t, []any{sent[0].ID, "Charge", "flow-a", "transient", "ledger 7 is closed", 1, s.hop.String() + "/Charge", repair.Open},
		[]any{l.MessageID, l.Type, l.CorrelationID, l.Class, l.Error, l.Attempts, l.Handler, l.Status})
	require.Equal(t, []string{"dead-letter", "ann", "ticket 4711"}, []string{l.History[0].Action, l.History[0].Actor, l.History[0].Reason})
	found, _, err := s.desk.Find(t.Context(), sent[0].ID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, repair.Dead, found[0].State)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.inbox WHERE message_id = $1", sent[0].ID), "not to be handled when it comes again")

	events := s.entries(s.hop.Events())
	require.Len(t, events, 1)
	require.Equal(t, []any{envelope.Exhausted, "flow-a", sent[0].ID, "s-1", "i-1", "payment", "a", "troupe.Exhausted"},
		[]any{events[0].Outcome, events[0].CorrelationID, events[0].CausationID, events[0].SagaID, events[0].IdempotencyKey, events[0].Source,
			string(events[0].Key), events[0].Type})
	var body participant.Exhausted
	require.NoError(t, json.Unmarshal(events[0].Payload, &body))
	require.Equal(t, participant.Exhausted{
		DeadLetterID: r.DeadLetter.String(), Type: "Charge", Handler: s.hop.String() + "/Charge", Class: "transient",
		Error: "ledger 7 is closed", Attempts: 1,
	}, body)
	copies := s.entries(s.hop.DeadLetters())
	require.Len(t, copies, 1)
	require.Equal(t, sent[0].Payload, copies[0].Payload)
	require.Equal(t, sent[0].ID, copies[0].ID)
	require.Equal(t, r.DeadLetter.String(), header(copies[0], deadletter.HeaderDeadLetterID))
	require.Equal(t, "ledger 7 is closed", header(copies[0], deadletter.HeaderErrorsMessage))

	s.exec("DELETE FROM rules")
	s.participant(patient)
	s.waitCount(2, "SELECT count(*) FROM charges WHERE key = 'a' AND n IN (2, 3)")
	s.relay()
	_, err = s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM charges WHERE key = 'a' AND n = 1")
}

// TestReleaseTakesAMessageThatWasNotTried releases the next message of a key, and one for which no member has a handler.
func TestReleaseTakesAMessageThatWasNotTried(t *testing.T) {
	t.Parallel()
	s, sent := waiting(t)
	s.exec("UPDATE troupe.held SET attempts = 0, unhandled_since = now(), last_error = 'no handler' WHERE key = 'b'")
	_, err := s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	for m, want := range map[string]string{sent[1].ID: "released before its first try", sent[3].ID: "no handler"} {
		r, err := s.desk.Release(t.Context(), s.heldPlace(envelope.Message{ID: m}), repair.ReleaseConfig{By: ann})
		require.NoError(t, err)
		l, err := s.desk.Show(t.Context(), r.DeadLetter)
		require.NoError(t, err)
		require.Equal(t, []any{m, "transient", want, 0}, []any{l.MessageID, l.Class, l.Error, l.Attempts})
	}
}

// TestAReleasedMessageLooksLikeOneThatUsedUpItsAttempts compares both, row by row.
func TestAReleasedMessageLooksLikeOneThatUsedUpItsAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", false)
	once := func(c *participant.Config) { c.Retry.Attempts = 1 }
	stop := s.participant(patient)
	m := s.command("a", Charge{N: 1})
	m.Extra = []envelope.Header{{Key: "x", Value: []byte{0xff}}, {Key: deadletter.HeaderRedrive, Value: []byte("2")}}
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	stop()
	_, err := s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	state := func() (letter string, events []envelope.Message) {
		require.NoError(t, s.pool.QueryRow(t.Context(), `
			SELECT to_jsonb(d) - ARRAY['id', 'offset', 'first_failed_at', 'last_failed_at', 'created_at', 'message_time'] FROM troupe.dead_letters d`).Scan(&letter))
		for _, topic := range []string{s.hop.Events(), s.hop.DeadLetters()} {
			for _, e := range s.entries(topic) {
				e.Time = time.Time{}
				for i, h := range e.Extra {
					switch h.Key {
					case deadletter.HeaderFirstFailed, deadletter.HeaderLastFailed, deadletter.HeaderDeadLetterID, deadletter.HeaderErrorsOffset:
						e.Extra[i].Value = nil
					}
				}
				if topic == s.hop.Events() {
					e.ID, e.Payload = "", nil // they depend on the record's time, and on the dead letter's id
				}
				events = append(events, e)
			}
		}
		return letter, events
	}
	letter, events := state()
	s.exec("TRUNCATE troupe.dead_letters, troupe.inbox, troupe.inbox_recent, troupe.outbox, troupe.repairs")
	s.participant(once)
	s.send(m)
	s.waitCount(1, openLetters)
	wantLetter, wantEvents := state()
	require.JSONEq(t, wantLetter, letter)
	require.Equal(t, wantEvents, events)
}

// TestADeadLetterOfAHeldMessageKeepsAllItsHeaders: they are more than are decoded. An operator or the participant writes it.
func TestADeadLetterOfAHeldMessageKeepsAllItsHeaders(t *testing.T) {
	t.Parallel()
	const headers = "SELECT string_agg(encode(sha256(headers), 'hex'), '' ORDER BY \"offset\") FROM "
	for _, by := range []string{"an operator", "the participant"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.fails("a", "ledger 7 is closed", false)
			stop := s.participant(patient)
			m := s.command("a", Charge{N: 2})
			for range 70_000 {
				m.Extra = append(m.Extra, envelope.Header{Key: "h"})
			}
			s.send(s.command("a", Charge{N: 1}), m)
			s.waitCount(2, "SELECT count(*) FROM troupe.held")
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
			var held, dead string
			require.NoError(t, s.pool.QueryRow(t.Context(), headers+"troupe.held").Scan(&held))
			if by == "an operator" {
				stop()
				for range 2 {
					_, err := s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
					require.NoError(t, err)
				}
			} else {
				_, err := s.desk.Release(t.Context(), s.held("a").Place, repair.ReleaseConfig{By: ann})
				require.NoError(t, err)
			}
			s.waitCount(2, openLetters)
			require.NoError(t, s.pool.QueryRow(t.Context(), headers+"troupe.dead_letters").Scan(&dead))
			require.Equal(t, held, dead)
		})
	}
}

// TestReleaseAndARunningTryDoNotMeet checks that whichever is second sees the effect of the first.
func TestReleaseAndARunningTryDoNotMeet(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t)
	release := func(p repair.Place) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.desk.Release(context.Background(), p, repair.ReleaseConfig{By: ann})
			done <- err
		}()
		s.waitCount(1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		return done
	}
	begin := func(key string) pgx.Tx { // the first statement of a participant's transaction
		tx, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), "DELETE FROM troupe.held WHERE key = $1 AND attempts = 1", []byte(key))
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
		return tx
	}
	a, b := s.held("a").Place, s.held("b").Place

	tx := begin("b")
	done := release(b)
	require.NoError(t, tx.Commit(t.Context())) // the attempt succeeded
	require.ErrorIs(t, <-done, repair.ErrGone)

	tx = begin("a")
	done = release(a)
	require.NoError(t, tx.Rollback(t.Context())) // the attempt failed
	require.NoError(t, <-done)
	require.Equal(t, 1, s.count(openLetters))

	// In the other order the participant finds its row deleted.
	tag, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.held WHERE key = 'a' AND attempts = 1")
	require.NoError(t, err)
	require.Zero(t, tag.RowsAffected())
}

// TestAReleaseWaitsForAnotherDeliveryOfItsMessage checks that a held message whose other delivery takes effect meanwhile, as after
// its sender sent it twice, is no dead letter.
func TestAReleaseWaitsForAnotherDeliveryOfItsMessage(t *testing.T) {
	t.Parallel()
	s, sent := waiting(t)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO troupe.inbox_recent (consumer_group, id, slot)
		SELECT $1, $2::text::uuid, ('x' || left(replace($2, '-', ''), 12))::bit(48)::bigint / 86400000 % 32`, s.hop.String(), sent[3].ID)
	require.NoError(t, err)
	place := s.held("b").Place
	type result struct {
		repair.ReleaseResult
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := s.desk.Release(context.Background(), place, repair.ReleaseConfig{By: ann})
		done <- result{r, err}
	}()
	testkit.Wait(t, "the release to wait, or to end", func() (bool, error) {
		return len(done) == 1 || s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1, nil
	})
	require.NoError(t, tx.Commit(t.Context()))
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, uuid.Nil, r.DeadLetter, "it has taken effect")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held WHERE key = 'b'"))
}

// TestAMessageThatTookEffectIsOnlyFreed checks that the row of a lost race is no dead letter, whichever table contains the
// identity.
func TestAMessageThatTookEffectIsOnlyFreed(t *testing.T) {
	t.Parallel()
	for _, inbox := range []string{
		"INSERT INTO troupe.inbox (consumer_group, message_id) VALUES ($1, $2)",
		`INSERT INTO troupe.inbox_recent (consumer_group, id, slot)
		 SELECT $1, $2::text::uuid, ('x' || left(replace($2, '-', ''), 12))::bit(48)::bigint / 86400000 % 32`,
	} {
		t.Run(inbox[:32], func(t *testing.T) {
			t.Parallel()
			takenEffect(t, inbox)
		})
	}
}

func takenEffect(t *testing.T, inbox string) {
	s, sent := waiting(t)
	s.exec(inbox, s.hop.String(), sent[3].ID)
	r, err := s.desk.Release(t.Context(), s.held("b").Place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, r.DeadLetter)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held WHERE key = 'b'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'dead-letter' AND dead_letter_id IS NULL"))
}

func (s *stage) held(key string) repair.HeldKey {
	s.t.Helper()
	keys, _, err := s.desk.Held(s.t.Context(), repair.HeldFilter{Key: repair.Key(key)}, repair.Page{})
	require.NoError(s.t, err)
	require.Len(s.t, keys, 1)
	return keys[0]
}

// heldPlace returns the place of a held message, also of one behind another.
func (s *stage) heldPlace(m envelope.Message) repair.Place {
	s.t.Helper()
	found, _, err := s.desk.Find(s.t.Context(), m.ID)
	require.NoError(s.t, err)
	require.Len(s.t, found, 1)
	return *found[0].Place
}

// listen returns a function that waits for the next notification on a channel.
func (s *stage) listen(channel string) func() string {
	conn, err := pgx.Connect(s.t.Context(), testkit.DatabaseURL(s.t, s.pool))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(s.t.Context(), "LISTEN "+channel)
	require.NoError(s.t, err)
	return func() string {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return "none"
		}
		require.NoError(s.t, err)
		return n.Payload
	}
}

// TestReleaseWaitsForAHandlerThatRuns uses a real participant in the middle of its transaction.
func TestReleaseWaitsForAHandlerThatRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome error
		charges int
		letters int
		want    error
	}{
		{"it succeeds", nil, 1, 0, repair.ErrGone},
		{"it fails", errors.New("still no"), 0, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.fails("a", "no", false)
			stop := s.participant(patient)
			s.send(s.command("a", Charge{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
			stop()
			s.exec("DELETE FROM rules")
			place := s.held("a").Place
			_, err := s.desk.Retry(t.Context(), repair.HeldFilter{}, ann)
			require.NoError(t, err)

			running, end := make(chan bool, 9), make(chan bool)
			p, err := participant.New(s.config(patient))
			require.NoError(t, err)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, m participant.Command[Charge]) (participant.Outcome, error) {
				outcome, err := charge(ctx, tx, m)
				running <- true
				<-end
				return outcome, errors.Join(err, c.outcome)
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
			require.ErrorIs(t, <-done, c.want)
			require.Equal(t, c.charges, s.count("SELECT count(*) FROM charges"))
			require.Equal(t, c.letters, s.count(openLetters))
			require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
			s.send(s.command("a", Charge{N: 2})) // the key continues
			if c.outcome == nil {
				s.waitCount(2, "SELECT count(*) FROM charges")
			} else {
				s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts IN (0, 1)")
			}
		})
	}
}

// TestALockTimeoutIsReported checks the error of a Release that cannot get the lock, and that nothing has happened.
func TestALockTimeoutIsReported(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "DELETE FROM troupe.held WHERE key = 'a'")
	require.NoError(t, err)
	place := s.held("a").Place
	_, err = s.desk.Release(t.Context(), place, repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, admin.ErrBusy)
	require.ErrorContains(t, err, "try again")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.repairs"))
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.held"))
}

// In TestReleaseOfAPlaceThatSeveralMessagesHaveGivesUpTheFirstOnly the topic was created again, or its log was truncated, while a
// message was held, and the message that has its place now is held, too.
func TestReleaseOfAPlaceThatSeveralMessagesHaveGivesUpTheFirstOnly(t *testing.T) {
	t.Parallel()
	s, sent := waiting(t)
	place := s.held("b").Place
	const again = `
		INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time,
		                         max_attempts, message_id, attempts, next_try, error_class, last_error)
		SELECT consumer_group, CASE WHEN $1 THEN gen_random_uuid() ELSE topic_id END, partition, "offset", topic, sha256($2::bytea), $2, $3,
		       payload, message_time, max_attempts, $4, attempts, next_try, error_class, 'no either'
		FROM troupe.held
		WHERE key = 'b'`
	created, cut := s.command("created again", Charge{}), s.command("cut", Charge{})
	for _, m := range []envelope.Message{created, cut} {
		s.exec(again, m.ID == created.ID, m.Key, envelope.MarshalHeaders(kafka.Headers(kafka.Record(m))), m.ID)
	}
	for _, m := range []envelope.Message{sent[3], created, cut} {
		r, err := s.desk.Release(t.Context(), place, repair.ReleaseConfig{By: ann})
		require.NoError(t, err)
		l, err := s.desk.Show(t.Context(), r.DeadLetter)
		require.NoError(t, err)
		require.Equal(t, m.ID, l.MessageID)
	}
	_, err := s.desk.Release(t.Context(), place, repair.ReleaseConfig{By: ann})
	require.ErrorIs(t, err, repair.ErrGone)
	require.Equal(t, 3, s.count("SELECT count(*) FROM troupe.held"), "at other places")
}
