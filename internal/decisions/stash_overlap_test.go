package decisions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// outcome has everything that transactions have done with one event.
type outcome struct {
	takers  int // the sagas that used it or kept it when it came
	users   []string
	ignored bool
	stashed bool
}

// TestNoEventIsLostOrUsedTwiceHoweverTransactionsOverlap runs transactions at once that start, answer, change and end sagas of two values, and
// events of these values. At the end no saga waits for an event that is there for it.
func TestNoEventIsLostOrUsedTwiceHoweverTransactionsOverlap(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{"with locks": `,"lock":"data.guest"`, "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"}`+lock+`,"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"100h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"100h"},
 {"name":"back","needs":["arrival"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"100h"}]}`)
			o := &overlap{database: db, came: make(map[string]*outcome)}
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() { o.work(rand.New(rand.NewPCG(uint64(w), rand.Uint64())), w) })
			}
			wg.Wait()
			o.check()
		})
	}
}

type overlap struct {
	*database
	mu   sync.Mutex
	ids  []string
	came map[string]*outcome
}

// transact runs do until it is not in conflict, and then everything that follows from it.
func (o *overlap) transact(do func(*pass) error) {
	for {
		var p *pass
		err := pgx.BeginTxFunc(context.Background(), o.pool, Committed, func(tx pgx.Tx) error {
			p = o.definitions.begin(NewPostgres(tx, "flow.desk", "flow.desk"))
			err := do(p)
			if err == nil {
				_, err = p.end(context.Background())
			}
			return err
		})
		if err = conflict(err); errors.Is(err, ErrConflict) {
			continue
		}
		if errors.Is(err, ErrRefused) {
			return
		}
		if err != nil {
			o.t.Errorf("%v", err)
			return
		}
		o.record(p)
		for id := range p.wake {
			o.transact(func(p *pass) error { return p.due(context.Background(), id) })
		}
		for _, s := range p.search {
			o.transact(func(p *pass) error { return p.searchStash(context.Background(), s) })
		}
		return
	}
}

func (o *overlap) record(p *pass) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range p.decided {
		e := o.came[d.Event.Message]
		switch {
		case e == nil || d.Event.Kind != saga.Observed:
		case d.Effects.Ignored != "":
			e.ignored = true
		default:
			e.users = append(e.users, d.ID)
			if d.Message >= 0 && !e.stashed {
				e.takers++
			}
		}
	}
	for _, s := range p.stashed {
		e := o.came[s.Event.Message]
		e.stashed = true
		if s.For != "" {
			e.takers++
		}
	}
}

func (o *overlap) work(r *rand.Rand, w int) {
	ctx := context.Background()
	guest := func() string { return fmt.Sprint("g-", r.IntN(2)) }
	for n := range 60 {
		key := fmt.Sprint(w, "-", n)
		o.mu.Lock()
		id := ""
		if len(o.ids) > 0 {
			id = o.ids[max(0, len(o.ids)-1-r.IntN(12))]
		}
		o.mu.Unlock()
		switch k := r.IntN(10); {
		case k < 2 || id == "":
			o.transact(func(p *pass) error {
				_, err := p.begin(ctx, "visit", map[string]any{"id": key, "guest": guest()})
				return err
			})
			o.mu.Lock()
			o.ids = append(o.ids, key)
			o.mu.Unlock()
		case k < 5:
			o.mu.Lock()
			o.came[key] = &outcome{}
			o.mu.Unlock()
			m := Message{ID: key, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": guest()}}
			o.transact(func(p *pass) error { return p.messages(ctx, []Message{m}) })
		case k < 8:
			m := Message{ID: "r " + key, Hop: "rooms", Type: "Reserved", Key: id, Outcome: "success", SagaID: "visit/" + id, SagaStep: "room"}
			o.transact(func(p *pass) error { return p.messages(ctx, []Message{m}) })
		default:
			e := saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "r"}
			if k == 8 {
				e = saga.Event{Kind: saga.ActSet, Fields: map[string]any{"guest": guest()}, Actor: "ann", Reason: "r"}
			}
			o.transact(func(p *pass) error { _, err := p.act(ctx, "visit/"+id, e); return err })
		}
	}
}

func (o *overlap) check() {
	t := o.t
	rows, err := o.pool.Query(t.Context(), "SELECT event ->> 'message', saga_id, value FROM troupe.saga_stash")
	require.NoError(t, err)
	type row struct{ Message, For, Value string }
	stash, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	require.NoError(t, err)
	there := make(map[string]bool)
	for _, s := range stash {
		there[s.Message] = true
	}
	for id, e := range o.came {
		require.True(t, there[id] || len(e.users) > 0 || e.ignored || e.takers > 1, "%s is lost: %+v", id, e)
		require.LessOrEqual(t, len(e.users), max(1, e.takers), "%s is used twice: %+v", id, e)
	}
	for _, id := range o.ids {
		o.pass(func(p *pass) error {
			require.NoError(t, p.load(t.Context(), []string{"visit/" + id}))
			l := p.sagas["visit/"+id]
			for _, s := range stash {
				require.False(t, l.state.Ended() && s.For == "visit/"+id, "%s is kept for %s, which has ended", s.Message, id)
				for _, w := range wantsOf(l) {
					require.False(t, w.Value == s.Value && (s.For == "" || s.For == "visit/"+id), "%s waits, and %s is stashed", id, s.Message)
				}
			}
			return nil
		})
	}
}
