package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A lane is a relay with its database, of which server b continues from an earlier image.
type lane struct {
	*stage
	name     string
	mapped   bool
	source   relay.Source
	delivery relay.Delivery
	onB      *pgxpool.Pool
	logs     lines
}

func (l *lane) config(pool *pgxpool.Pool) relay.Config {
	var cfg relay.Config
	if l.mapped {
		cfg = l.stage.mapped("public.outbox", l.routed(map[string]string{"table.field.position": "position"}))
	} else {
		cfg = l.stage.config()
	}
	cfg.Pool, cfg.Source, cfg.Delivery, cfg.Log = pool, l.source, l.delivery, l.logs.logger(l.t)
	cfg.Lease = 2 * time.Second
	cfg.Slot = strings.ReplaceAll("troupe_"+l.flow, "-", "_")
	if l.mapped {
		cfg.Publication = cfg.Slot
	}
	return cfg
}

// insert writes a row with an id of its own, or with the given one.
func (l *lane) insert(pool *pgxpool.Pool, id *string, payload string) {
	l.t.Helper()
	query := `INSERT INTO troupe.outbox (id, topic, key, type, payload) VALUES (coalesce($1::text::uuid, gen_random_uuid()), $2, 'k', 'Thing', $3)`
	if l.mapped {
		query = `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (coalesce($1::text::uuid, gen_random_uuid()), $2, 'k', 'T', to_jsonb(convert_from($3, 'UTF8')))`
	}
	topic := l.topic
	if l.mapped {
		topic = "main"
	}
	_, err := pool.Exec(l.t.Context(), query, id, topic, []byte(payload))
	require.NoError(l.t, err)
}

// read returns the payloads that a consumer of committed messages sees, first copies.
func (l *lane) read() (payloads []string) {
	l.t.Helper()
	for _, value := range values(l.committed(l.topic)) {
		payloads = append(payloads, strings.Trim(value, `"`))
	}
	return payloads
}

// awaitStream waits until the rows that follow are published from the log, if that is the source.
func (l *lane) awaitStream() {
	l.t.Helper()
	table := "relay_state"
	if l.mapped {
		table = "mapped_tables"
	}
	testkit.Wait(l.t, l.name+": the stream", func() (bool, error) {
		return l.source == relay.Poll || l.count("SELECT count(*) FROM troupe."+table+" WHERE source = 'wal' AND sweep IS NULL") == 1, nil
	})
}

func (l *lane) await(want []string) {
	l.t.Helper()
	testkit.Wait(l.t, l.name+": the rows", func() (bool, error) {
		if got := l.read(); !slices.Equal(want, got) {
			return false, fmt.Errorf("%q", got)
		}
		return true, nil
	})
}

// A server is set back to an image of its disk: it has the same name and the same timeline, and gives the positions of lost rows out
// again. Its log passes the checkpoint in Kafka again with other transactions, and the service writes one of the lost rows again, under
// its id and at its position. The relay runs all the time. The image is from before the relay's first start, or has its first rows.
func TestTheNewRowsOfADatabaseThatWasSetBackArePublished(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, started := range []bool{false, true} {
		t.Run(fmt.Sprintf("the relay had started %t", started), func(t *testing.T) {
			t.Parallel()
			lanes := []*lane{
				{name: "poll", source: relay.Poll, delivery: relay.AtLeastOnce},
				{name: "log", source: relay.WAL, delivery: relay.AtLeastOnce},
				{name: "once", source: relay.WAL, delivery: relay.ExactlyOnce},
				{name: "mapped", source: relay.WAL, delivery: relay.AtLeastOnce, mapped: true},
				{name: "mapped_once", source: relay.WAL, delivery: relay.ExactlyOnce, mapped: true},
			}
			var f *failover
			create := func(l *lane) {
				address, err := f.a.CreateDatabase(t.Context(), l.name, "shop")
				require.NoError(t, err)
				l.stage = &stage{t: t, pool: poolOf(t, address), brokers: f.brokers, flow: testkit.Flow(t)}
				l.topic = l.flow + ".main.events"
				l.provision(kafka.Topic{Name: l.topic, Partitions: 1})
				if l.mapped {
					l.exec(debeziumTable + "; ALTER TABLE public.outbox ADD position bigint GENERATED ALWAYS AS IDENTITY")
				}
			}
			want := []string{}
			f = newFailover(t, func(begun *failover) {
				f = begun
				for _, l := range lanes {
					create(l)
					if started {
						r := l.start(l.config(l.pool))
						l.awaitStream()
						l.insert(l.pool, nil, "before")
						l.await([]string{"before"})
						require.NoError(t, r.stop())
					}
				}
			})
			if started {
				want = append(want, "before")
			}
			const again = "01a2108b-08b6-72a5-be6f-adaa0a3f53fd"
			_, err := lanes[0].pool.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 8000000))") // a is ahead of b
			require.NoError(t, err)
			for _, l := range lanes {
				l.start(l.config(f.redirected(l.pool)))
				l.insert(l.pool, nil, "lost 0")
				l.insert(l.pool, nil, "lost 1")
				last := again
				l.insert(l.pool, &last, "written again")
				l.await(append(slices.Clone(want), "lost 0", "lost 1", "written again"))
			}
			want = append(want, "lost 0", "lost 1", "written again", "new 0", "new 1", "new 2", "new 3")
			for _, l := range lanes {
				l.onB = poolOf(t, f.b.URL(l.name))
				l.insert(l.onB, nil, "new 0")
				l.insert(l.onB, nil, "new 1")
				last := again
				l.insert(l.onB, &last, "written again")
				l.insert(l.onB, nil, "new 2")
			}
			_, err = f.onB.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 30000000))")
			require.NoError(t, err)
			for _, l := range lanes {
				l.insert(l.onB, nil, "new 3")
			}
			f.leadToB()
			require.NoError(t, f.a.Stop(t.Context()))
			for _, l := range lanes {
				l.await(want)
			}
		})
	}
}
