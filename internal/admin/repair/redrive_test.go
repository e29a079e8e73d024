package repair_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

var quickly = repair.RedriveConfig{By: admin.Actor{Name: "ann"}, Rate: -1}

// TestARedrivenMessageGetsItsOutcomeOnce covers the whole path: handler, dead letter, outbox, relay, topic, handler.
func TestARedrivenMessageGetsItsOutcomeOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("a", "account service says 503", false)
	s.participant()
	s.relay()
	sent := s.command("a", Charge{N: 1, Cents: 5})
	s.send(sent)
	s.waitCount(1, openLetters)

	// Redriven too early the message fails again, and becomes another dead letter.
	r, err := s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 0}, []int{r.Total, r.Redriven, r.Refused})
	s.waitCount(1, openLetters+" AND redrives = 1")

	s.exec("DELETE FROM rules")
	_, err = s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM charges")
	require.Zero(t, s.count(openLetters))
	r, err = s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	require.Zero(t, r.Total)

	var outcomes []envelope.Outcome
	for _, m := range s.read(s.hop.Events(), 3) {
		outcomes = append(outcomes, m.Outcome)
		require.Equal(t, sent.ID, m.CausationID)
		require.Equal(t, sent.CorrelationID, m.CorrelationID)
	}
	require.Equal(t, []envelope.Outcome{envelope.Exhausted, envelope.Exhausted, envelope.Success}, outcomes)

	found, _, err := s.desk.Find(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Len(t, found, 3)
	for i, want := range []repair.State{repair.Dead, repair.Dead, repair.Handled} {
		require.Equal(t, want, found[i].State)
		require.Equal(t, i, found[i].Redrive)
	}
	require.Equal(t, repair.Redriven, found[0].Status)
}

// TestARedriveLeavesBytesAndHeadersAlone compares the record of the redrive with the original one.
func TestARedriveLeavesBytesAndHeadersAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	stop := s.participant()
	sent := s.command("a", Charge{N: 1})
	sent.Key, sent.Subject = []byte{0xff, 0, 'k'}, "s"
	sent.Payload = []byte(`{"n": 1,    "cents":7 }`)
	sent.SagaID, sent.SagaStep, sent.TraceParent, sent.IdempotencyKey = "s-1", "charge", "00-1-2-3", "i-1"
	mine := []envelope.Header{
		{Key: "x", Value: []byte{0, 0xff}}, {Key: "x", Value: nil}, {Key: "y", Value: []byte{}}, {Key: "ce_id", Value: []byte("a second one")},
	}
	sent.Extra = append(append([]envelope.Header{}, mine...), envelope.Header{Key: deadletter.HeaderClass, Value: []byte("of an earlier life")},
		envelope.Header{Key: deadletter.HeaderErrorsTopic, Value: []byte("another")}, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("6")})
	foreign := s.command("b", Charge{N: 2})
	foreign.ID, foreign.CorrelationID = "charge-17", ""
	nameless := s.command("c", Charge{N: 3})
	nameless.ID, nameless.Source, nameless.CorrelationID, nameless.ContentType = "", "", "", ""
	keyless := s.command("", Charge{N: 4})
	keyless.Key, keyless.Subject = nil, ""
	s.send(sent, foreign, nameless, keyless)
	s.waitCount(4, openLetters)
	stop()
	var before string
	const state = "SELECT string_agg(d::text, ';' ORDER BY id) FROM (SELECT id, headers, payload, key, error FROM troupe.dead_letters) d"
	require.NoError(t, s.pool.QueryRow(t.Context(), state).Scan(&before))

	r, err := s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	require.Equal(t, 4, r.Redriven, r.Refusals)
	s.relay()
	got := make(map[string]envelope.Message)
	for _, m := range s.read(s.hop.Commands(), 8) {
		if header(m, deadletter.HeaderRedriveGroup) == "" {
			continue // the original
		}
		require.Equal(t, s.hop.String(), header(m, deadletter.HeaderRedriveGroup))
		got[string(m.Payload)] = m
	}
	for _, c := range []struct {
		sent  envelope.Message
		extra []envelope.Header
		count string
	}{{sent, mine, "7"}, {foreign, nil, "1"}, {nameless, nil, "1"}, {keyless, nil, "1"}} {
		m := got[string(c.sent.Payload)]
		extra := append(append([]envelope.Header{}, c.extra...),
			envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte(c.count)},
			envelope.Header{Key: deadletter.HeaderRedriveGroup, Value: []byte(s.hop.String())})
		if c.sent.ID == "" {
			extra = append(extra, envelope.Header{Key: deadletter.HeaderRedriveIdentity, Value: []byte(m.ID)})
		}
		require.Equal(t, extra, m.Extra)
		m.Extra, c.sent.Extra = nil, nil
		require.True(t, c.sent.Time.Equal(m.Time))
		m.Time = c.sent.Time
		if c.sent.ID == "" { // the relay and the participant have added the missing attributes
			require.Equal(t, 1, strings.Count(m.ID, "~"), "the id that the participant made")
			require.Equal(t, 2, strings.Count(m.CorrelationID, "/"), "the exhausted event had this correlation")
			c.sent.ID, c.sent.CorrelationID, c.sent.Source, c.sent.ContentType = m.ID, m.CorrelationID, "payment", envelope.JSON
		} else if c.sent.CorrelationID == "" {
			c.sent.CorrelationID = c.sent.ID
		}
		require.Equal(t, c.sent, m)
	}
	var after string
	require.NoError(t, s.pool.QueryRow(t.Context(), state).Scan(&after))
	require.Equal(t, before, after, "the dead letters do not change")
}

// TestADeadLetterThatCannotBeSentIsRefusedAndTheOthersGoOn checks the reason and the remedy of each refusal.
func TestADeadLetterThatCannotBeSentIsRefusedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	s.participant()
	huge := kafka.Record(s.command("huge", Charge{}))
	huge.Value = []byte(`{"note":"` + strings.Repeat("x", 995_000) + `"}`)
	untyped := &kgo.Record{Topic: s.hop.Commands(), Value: []byte("no headers at all")}
	odd := s.command("odd", Charge{})
	odd.Type = "Odd\x00Type"
	many := kafka.Record(s.command("many", Charge{}))
	for range envelope.MaxHeaders {
		many.Headers = append(many.Headers, kgo.RecordHeader{Key: "h"})
	}
	full := kafka.Record(s.command("full", Charge{}))
	for len(full.Headers) < envelope.MaxHeaders {
		full.Headers = append(full.Headers, kgo.RecordHeader{Key: "h"})
	}
	require.NoError(t, s.client.ProduceSync(t.Context(), huge, untyped, kafka.Record(odd), many, full).FirstErr())
	s.send(s.command("good", Charge{N: 1}))
	s.waitCount(6, openLetters)

	r, err := s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	require.Equal(t, []int{6, 1, 5}, []int{r.Total, r.Redriven, r.Refused})
	why := ""
	for _, refusal := range r.Refusals {
		why += refusal.Err + "\n"
	}
	for _, want := range []string{"a relay sends at most 990000", `no handler can be for type ""`, `no handler can be for type "Odd\x00Type"`, "no relay sends such headers", "too many", "under a new ce_id, and discard this one"} {
		require.Contains(t, why, want)
	}
	require.Equal(t, 5, s.count(openLetters))
}

func TestADeadLetterThatIsNotOpenIsReportedWithItsActor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	s.participant()
	s.send(s.command("a", Charge{N: 1}), s.command("b", Charge{N: 2}))
	s.waitCount(2, openLetters)
	letters := s.letters()
	one, two, none := letters[0].ID, letters[1].ID, uuid.Must(uuid.NewV7())

	n, err := s.desk.Discard(t.Context(), repair.Filter{IDs: []uuid.UUID{one}}, ann)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.desk.Discard(t.Context(), repair.Filter{IDs: []uuid.UUID{one}}, admin.Actor{Name: "bob", Reason: "too"})
	require.ErrorIs(t, err, repair.ErrNotOpen)
	require.ErrorContains(t, err, "discarded by ann at 20")
	require.ErrorIs(t, s.desk.Edit(t.Context(), one, []byte(`{}`), ann), repair.ErrNotOpen)
	_, err = s.desk.Discard(t.Context(), repair.Filter{IDs: []uuid.UUID{none}}, ann)
	require.ErrorIs(t, err, repair.ErrNotFound)
	require.ErrorIs(t, s.desk.Edit(t.Context(), none, []byte(`{}`), ann), repair.ErrNotFound)
	_, err = s.desk.Show(t.Context(), none)
	require.ErrorIs(t, err, repair.ErrNotFound)

	r, err := s.desk.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{one, two, none}}, quickly)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{r.Redriven, r.Refused})
	require.Contains(t, r.Refusals[0].Err, "discarded by ann at 20")
	require.Contains(t, r.Refusals[1].Err, "not found")
	require.Len(t, s.entries(s.hop.Commands()), 1)
}

// TestARedriveTakesNothingThatFailedSince checks that messages which fail again are not redriven in an endless loop.
func TestARedriveTakesNothingThatFailedSince(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "still no", true)
	s.participant()
	s.relay()
	const n = 5
	for i := range n {
		s.send(s.command(fmt.Sprint(i), Charge{N: i}))
	}
	s.waitCount(n, openLetters)
	cfg := quickly
	cfg.Progress = func(r repair.RedriveResult) { // each fails again before the next is redriven
		s.waitCount(r.Redriven, openLetters+" AND redrives = 1")
	}
	r, err := s.desk.Redrive(t.Context(), repair.Filter{}, cfg)
	require.NoError(t, err)
	require.Equal(t, n, r.Redriven)
	require.Equal(t, n, s.count(openLetters+" AND redrives = 1"))

	// The limit of an interrupted redrive excludes them from another one, too.
	r, err = s.desk.Redrive(t.Context(), repair.Filter{Before: r.Before}, quickly)
	require.NoError(t, err)
	require.Zero(t, r.Redriven)
}

func TestTheRateIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	stop := s.participant()
	for i := range 6 {
		s.send(s.command("a", Charge{N: i}))
	}
	s.waitCount(6, openLetters)
	stop()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := repair.RedriveConfig{By: ann, Rate: 20}
	cfg.Progress = func(r repair.RedriveResult) {
		if r.Redriven == 5 {
			cancel()
		}
	}
	began := time.Now()
	r, err := s.desk.Redrive(ctx, repair.Filter{}, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 5, r.Redriven, "the result is returned with the error")
	require.GreaterOrEqual(t, time.Since(began), 4*time.Second/20, "the least that four waits take")
	require.Equal(t, 1, s.count(openLetters))
	require.Equal(t, 5, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'redrive' AND actor = 'ann' AND reason = 'ticket 4711'"))
}

func TestNobodyActsWithoutANameAndAReason(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	anyone, nameless := admin.Actor{Name: "ann"}, admin.Actor{Reason: "r"}
	_, redrive := s.desk.Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: nameless})
	_, discard := s.desk.Discard(t.Context(), repair.Filter{}, anyone)
	_, retry := s.desk.Retry(t.Context(), repair.HeldFilter{}, nameless)
	_, release := s.desk.Release(t.Context(), repair.Place{}, repair.ReleaseConfig{By: anyone})
	edit := s.desk.Edit(t.Context(), uuid.Nil, []byte("{}"), anyone)
	for _, err := range []error{redrive, retry} {
		require.ErrorContains(t, err, "want an actor")
	}
	for _, err := range []error{discard, release, edit} {
		require.ErrorContains(t, err, "want a reason")
	}
	_, err := s.desk.Discard(t.Context(), repair.Filter{}, admin.Actor{Name: "ann", Reason: strings.Repeat("x", 2001)})
	require.ErrorContains(t, err, "at most 2000")
	for _, name := range []string{"ann\r\nbob", "ann\x1b[2J", "ann\u202ebob"} {
		_, err = s.desk.Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: admin.Actor{Name: name}})
		require.ErrorContains(t, err, "actor: the name has a line break, or another character that is not shown")
	}
	_, err = s.desk.Discard(t.Context(), repair.Filter{Status: repair.Redriven}, ann)
	require.ErrorContains(t, err, "only open dead letters")
	_, err = s.desk.Redrive(t.Context(), repair.Filter{Class: "bad"}, quickly)
	require.ErrorContains(t, err, "want one of transient")
	_, err = repair.New(repair.Config{})
	require.Error(t, err)
}

// TestADatabaseWithoutTablesIsSaidSo checks the remedy in the error. rights_test.go checks the remedy for missing rights.
func TestADatabaseWithoutTablesIsSaidSo(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), "DROP SCHEMA troupe CASCADE")
	require.NoError(t, err)
	desk, err := repair.New(repair.Config{Pool: pool})
	require.NoError(t, err)
	_, _, err = desk.Causes(t.Context(), repair.Filter{}, repair.Page{})
	require.ErrorContains(t, err, "outbox-relay migrate")
	require.False(t, errors.Is(err, repair.ErrNotFound))
}
