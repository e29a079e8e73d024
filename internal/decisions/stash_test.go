package decisions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// While sagas of an older version run, either version may get the event. The six pairs cover both orders of the hashes.
func TestAnEarlyEventIsKeptAsLongAsAnyVersionSays(t *testing.T) {
	version := func(n int, stash string) *saga.Definition {
		d, err := saga.Parse(fmt.Appendf(nil, `{"saga":"order","version":%d,"key":"id","data":{"id":"string"},"stash":%q,
		"steps":[{"name":"paid","success":[{"hop":"payment","event":"Paid"}]}]}`, n, stash))
		require.NoError(t, err)
		return d
	}
	for n := range 6 {
		was, is := version(1, fmt.Sprint(n+1, "m")), version(2, "24h")
		for _, current := range []*saga.Definition{was, is} {
			m, err := NewMemory(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), current)
			require.NoError(t, err)
			m.definitions.byHash[was.Hash()], m.definitions.byHash[is.Hash()] = was, is
			m.definitions.sort()
			require.NoError(t, m.Take(Message{ID: "m-1", Hop: "payment", Type: "Paid", Key: "o-1", Outcome: "success"}))
			require.Equal(t, 24*time.Hour, m.stash[0].Expires.Sub(m.now))
		}
	}
}

// TestEventsThatComeBeforeTheirSagaHaveALimitOfBytes: the start of a saga reads all of them into memory, and compressed batches are small.
func TestEventsThatComeBeforeTheirSagaHaveALimitOfBytes(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},
	"steps":[{"name":"paid","success":[{"hop":"payment","event":"Paid"}]}]}`))
	require.NoError(t, err)
	m, err := NewMemory(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), d)
	require.NoError(t, err)
	paid := func(id int, key string) error {
		return m.Take(Message{
			ID: fmt.Sprint("m-", id), Hop: "payment", Type: "Paid", Key: key, Outcome: "success",
			Fields: map[string]any{"note": strings.Repeat("x", 1_000_000)},
		})
	}
	kept := 0
	for kept = range 20 {
		if err = paid(kept, "o-1"); err != nil {
			break
		}
	}
	require.Equal(t, 8, kept)
	require.ErrorIs(t, err, ErrRefused)
	require.True(t, retry.IsPermanent(err))
	require.ErrorContains(t, err, "saga order")
	require.NoError(t, paid(100, "o-2"), "another saga's")
	require.NoError(t, m.Advance(2*time.Hour))
	require.NoError(t, paid(101, "o-1"), "the others are expired")
}

// counted is a Store that counts the calls by which events are stashed.
type counted struct {
	Store
	measured, stashed, found int
}

func (c *counted) FindStashed(ctx context.Context, id string, fresh []Association, q StashQuery) ([]Stashed, error) {
	c.found++
	return c.Store.FindStashed(ctx, id, fresh, q)
}

func (c *counted) StashBytes(ctx context.Context, a Association, ids []string, e saga.Event) (map[string]int64, error) {
	c.measured++
	return c.Store.StashBytes(ctx, a, ids, e)
}

func (c *counted) Stash(ctx context.Context, events []Stashed) error {
	c.stashed++
	return c.Store.Stash(ctx, events)
}

// TestAnEventThatManySagasKeepIsStashedAtOnce: with statements for each saga, an event of 10,000 sagas of one value would take longer than a
// handler may take.
func TestAnEventThatManySagasKeepIsStashedAtOnce(t *testing.T) {
	m, start, _, reserve := visit(t, "")
	const sagas = 100
	for n := range sagas {
		start(fmt.Sprint("v-", n))
	}
	c := &counted{Store: m}
	arrived := Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	require.NoError(t, m.definitions.begin(c).messages(t.Context(), []Message{arrived}))
	require.Equal(t, counted{m, 1, 1, 0}, *c)
	for n := range sagas {
		reserve(fmt.Sprint("v-", n))
		require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	}
}

// TestTheEndOfOneOfManySagasOfAValueIsOneSearch: with a search for each saga of the value, each end would cost as many transactions as there are
// sagas. Only the saga that awaits the event reads the stash for it.
func TestTheEndOfOneOfManySagasOfAValueIsOneSearch(t *testing.T) {
	m, start, arrive, reserve := visit(t, "")
	start("v-0")
	arrive("m-1")
	arrive("m-2") // v-0 keeps both
	for n := range 100 {
		start(fmt.Sprint("v-1", n))
	}
	reserve("v-12")
	reserve("v-17")
	p := m.definitions.begin(m)
	_, err := p.act(t.Context(), "visit/v-0", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "wrong guest"})
	require.NoError(t, err)
	_, err = p.end(t.Context())
	require.NoError(t, err)
	require.Len(t, p.search, 1)
	c := &counted{Store: m}
	after := m.definitions.begin(c)
	require.NoError(t, after.searchStash(t.Context(), p.search[0]))
	_, err = after.end(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, c.found, "all events of the value, and the ones of two sagas")
	for _, s := range m.Sagas() {
		require.Equal(t, s.Key == "v-12" || s.Key == "v-17", s.Status == saga.Completed, s.Key)
	}
	require.Empty(t, m.stash)
}
