package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// harsh makes every new session of the stage's database end, time out or work in other ways that the relay cannot use, except
// the stage's own. The limit on the first statement of a session, before which no setting of the relay applies, is long
// enough for a slow machine, and shorter than the tests' waits.
func (s *stage) harsh() {
	s.t.Helper()
	config := s.pool.Config()
	for name, own := range map[string]struct{ theirs, ours string }{
		"statement_timeout":                   {"2s", "0"},
		"lock_timeout":                        {"1ms", "0"},
		"idle_session_timeout":                {"2s", "0"},
		"idle_in_transaction_session_timeout": {"1ms", "0"},
		"default_transaction_isolation":       {"serializable", "read committed"},
		"search_path":                         {"theirs", "public"},
		"client_encoding":                     {"LATIN1", "UTF8"},
	} {
		s.exec("ALTER DATABASE " + config.ConnConfig.Database + " SET " + name + " = '" + own.theirs + "'")
		config.ConnConfig.RuntimeParams[name] = own.ours
	}
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	s.pool = pool
}

func TestTheRelayWorksWhateverTheSettingsOfItsRole(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.config()
			pool, err := pgxpool.NewWithConfig(t.Context(), s.pool.Config()) // without settings of its own
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			cfg.Source, cfg.Pool, cfg.UnknownTopic = source, pool, time.Millisecond
			s.harsh()
			// A slot waits for this transaction, longer than any of the time-outs.
			open, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = open.Rollback(context.Background()) }()
			_, err = open.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'café', 'Thing', '0')`, s.topic)
			require.NoError(t, err)
			r := s.start(cfg)
			waitRole(t, r, relay.Active)
			if source == relay.WAL {
				testkit.Wait(t, "a slot that waits", func() (bool, error) {
					return s.count("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event_type = 'Lock' AND clock_timestamp() - state_change > interval '3 s'") == 1, nil
				})
			}
			require.NoError(t, open.Commit(t.Context()))
			s.insert(s.flow+".none.commands", "parked", "")
			s.insert(s.topic, "café", "1")
			records := s.gather(2, s.topic)
			require.Equal(t, []string{"0", "1"}, values(records))
			require.Equal(t, "café", string(records[0].Key))
			testkit.Wait(t, "a parked row", func() (bool, error) { return r.Status().Parked == 1, nil })
			if source == relay.WAL {
				s.waitStream()
			}
		})
	}
}

// The service's pool may have another query mode, for example by its connection string.
func TestTheRelayWorksWhateverTheModeOfItsPool(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		for _, source := range []relay.Source{relay.Poll, relay.WAL} {
			t.Run(fmt.Sprint(mode, " ", source), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				cfg := s.config()
				config := s.pool.Config()
				config.ConnConfig.DefaultQueryExecMode = mode
				cfg.Source, cfg.Pool = source, poolWith(t, config)
				r := s.start(cfg)
				s.insert(s.topic, "k", "0")
				s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, raw_headers) VALUES ($1, 'bad', 'Thing', 'bad', '\x01')`, s.topic)
				s.insert(s.topic, "k", "1")
				require.Equal(t, []string{"0", "1"}, values(s.gather(2, s.topic)))
				testkit.Wait(t, "a parked row", func() (bool, error) { return r.Status().Parked == 1, nil })
			})
		}
	}
}

func TestAReplayWorksWhateverTheSettingsOfItsRole(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	cfg := s.config()
	config := s.pool.Config()
	delete(config.ConnConfig.RuntimeParams, "client_encoding")
	config.ConnConfig.RuntimeParams["application_name"] = "replayer"
	pool, err := pgxpool.NewWithConfig(t.Context(), config) // without settings of its own
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg.Pool = pool
	s.harsh()
	for _, payload := range []string{"0", "1", "2"} {
		s.insert(s.topic, "café", payload)
	}
	s.published()
	p, err := relay.Replay{Rate: 2}.Run(t.Context(), cfg, func(p relay.ReplayProgress) {
		if p.Published == 1 { // wait for longer than a session may be idle
			testkit.Wait(t, "idle sessions of the replay", func() (bool, error) { // one reads, another told which server this is
				return s.count(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'replayer'
					AND (state <> 'idle' OR clock_timestamp() - state_change < interval '3 s')`) == 0, nil
			})
			require.Positive(t, s.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'replayer'"))
		}
	})
	require.NoError(t, err)
	require.EqualValues(t, 3, p.Published)
	records := testkit.Consume(t, s.brokers, s.topic).WaitN(3)
	require.Equal(t, []string{"0", "1", "2"}, values(records))
	require.Equal(t, "café", string(records[0].Key))
}
