package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// created_at is the writer's to set: infinity, and years that RFC 3339 cannot express, are timestamps too.
func TestARowWithoutAUsableCreationTimeIsPublishedAsAnyOther(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.config()
			cfg.Source = source
			r := s.start(cfg)
			insert := func(topic, at string) {
				s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, created_at) VALUES ($1, $2, 'Thing', $2::text::bytea, $2::text::timestamptz)`, topic, at)
			}
			times := []string{"infinity", "-infinity", "20000-01-01", "4000-01-01 BC"}
			for _, at := range times {
				insert(s.flow+".late.commands", at)
			}
			testkit.Wait(t, "each row to fail", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures") == len(times), nil
			})
			_, err := retention.ReadStats(t.Context(), s.pool)
			require.NoError(t, err)
			listed, _, err := desk.Desk{DB: s.pool}.List(t.Context(), desk.Filter{}, desk.Page{Rows: 10})
			require.NoError(t, err)
			require.Len(t, listed, len(times))
			require.Nil(t, listed[0].Created)

			late := s.createTopic("late", 1)
			s.insert(s.topic, "good", "1")
			testkit.Consume(t, s.brokers, s.topic).WaitN(1)
			for _, record := range testkit.Consume(t, s.brokers, late).WaitN(len(times)) {
				require.Empty(t, header(record, "ce_time"), string(record.Value))
			}
			require.Less(t, r.Status().Lag, time.Hour)
		})
	}
}

// The log holds a position twice after TRUNCATE … RESTART IDENTITY.
func TestOnePositionTwiceInABatchOfRefusedRowsHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "good", "0")
	s.waitProven()
	require.NoError(t, r.stop())
	s.exec("TRUNCATE troupe.outbox RESTART IDENTITY")
	s.insert(s.flow+".late.commands", "a", "of the table before")
	s.exec("TRUNCATE troupe.outbox RESTART IDENTITY")
	s.insert(s.flow+".late.commands", "b", "of the table now")
	s.insert(s.topic, "good", "1")
	s.start(cfg)
	require.Equal(t, []string{"0", "1"}, values(s.gather(2, s.topic)))
	testkit.Wait(t, "the failure of the row that the table has", func() (bool, error) { // the others of its batch may go out first
		return s.count("SELECT count(*) FROM troupe.outbox_failures t JOIN troupe.outbox o USING (position, id)") == 1, nil
	})
	late := s.createTopic("late", 1)
	require.Equal(t, []string{"of the table now"}, values(testkit.Consume(t, s.brokers, late).WaitN(1)))
}

// TRUNCATE … RESTART IDENTITY leaves lines of rows that are gone, and gives their positions out again.
func TestALineOfAnotherRowAtThePositionHidesNoRow(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			open, err := s.pool.Begin(t.Context()) // housekeeping deletes no line while a transaction is older
			require.NoError(t, err)
			defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = open.Exec(t.Context(), "SELECT pg_current_xact_id()")
			require.NoError(t, err)
			s.insert(s.topic, "b", "1")
			s.insert(s.topic, "b", "2")
			s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
				SELECT min(position), troupe.uuidv7(), 't', 'a', 'parked', 1, 1, 'of a row that is gone' FROM troupe.outbox`)
			s.start(s.divided(shards))
			require.Equal(t, []string{"1", "2"}, values(s.gather(2, s.topic)))
		})
	}
}
