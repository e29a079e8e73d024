package decisions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/saga"
)

// tours are sagas of two versions that await events by two variables, of which the second is set by an answer. LOCK is a lock or nothing.
const tours = `{"saga":"tour","version":%d,"key":"id","data":{"id":"string","guest":"string","partner":"string"}%s,"stash":"1h","cancel":{"operator":true},"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved","set":{"partner":"event.partner"}}],"failure":[{"event":"Full"}],"timeout":"300h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}%s],"timeout":"300h"},
 {"name":"second","needs":["arrival"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"partner","field":"guest"}}],"timeout":"300h"}%s]}`

// TestNoSagaWaitsForAnEventThatIsStashed runs random histories of sagas that share values, with batches, locks, operators, moves and time. After
// each move: no saga waits for an event that is there for it, no event is kept for a saga that has ended, and a saga uses an event once.
// An event that no saga has used is stashed, or was ignored by all sagas of its value, or was for several sagas that have ended, or has
// expired.
func TestNoSagaWaitsForAnEventThatIsStashed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		lock := rapid.SampledFrom([]string{"", `,"lock":"data.guest"`}).Draw(r, "lock")
		define := func(version int, more, last string) *saga.Definition {
			d, err := saga.Parse(fmt.Appendf(nil, tours, version, lock, more, last))
			require.NoError(r, err)
			return d
		}
		one := define(1, "", "")
		two := define(2, `,{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}`,
			`,{"name":"departure","needs":["second"],"success":[{"event":"Departed","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"300h"}`)
		m, err := NewMemory(time.Unix(1000, 0), one)
		require.NoError(r, err)
		m.definitions.Add(two.Hash(), two)
		h := history{t: r, m: m, one: one, two: two, came: make(map[string]*arrived)}
		m.OnDecided = h.decided
		r.Repeat(map[string]func(*rapid.T){
			"start": h.start, "messages": h.messages, "act": h.act, "move": h.move, "time": h.time, "": h.check,
		})
	})
}

// arrived has what happened to one event.
type arrived struct {
	message Message
	at      time.Time
	running int      // the sagas of its values that ran when its batch came
	users   []string // the sagas that have used it
	kept    int      // the sagas for which it was kept when it came
}

type history struct {
	t        *rapid.T
	m        *Memory
	one, two *saga.Definition
	sagas    int
	messageN int
	came     map[string]*arrived
}

var guests = []string{"g-1", "g-2"}

func (h *history) decided(d Decided) {
	if d.Event.Kind == saga.Observed && d.Effects.Ignored == "" && d.Effects.Refused == "" {
		a := h.came[d.Event.Message]
		require.NotContains(h.t, a.users, d.ID, "%s is used twice", d.Event.Message)
		a.users = append(a.users, d.ID)
	}
}

func (h *history) start(r *rapid.T) {
	if h.sagas == 6 {
		r.Skip("enough sagas")
	}
	h.sagas++
	_, err := h.m.Start("tour", map[string]any{"id": fmt.Sprint(h.sagas), "guest": rapid.SampledFrom(guests).Draw(r, "guest")})
	require.NoError(r, err)
}

// messages hands over a batch of events of guests and of answers to commands.
func (h *history) messages(r *rapid.T) {
	var batch []Message
	for range rapid.IntRange(1, 3).Draw(r, "messages") {
		h.messageN++
		id := fmt.Sprint("m-", h.messageN)
		if all := h.m.Sagas(); len(all) > 0 && rapid.Bool().Draw(r, "answer") {
			s := rapid.SampledFrom(all).Draw(r, "saga")
			if s.Steps[0].Phase != saga.Intent || slices.ContainsFunc(batch, func(m Message) bool { return m.SagaID == s.ID() }) {
				continue
			}
			answer := Message{ID: id, Hop: "rooms", Type: "Reserved", Key: s.Key, Outcome: "success", SagaID: s.ID(), SagaStep: "room",
				Fields: map[string]any{"partner": rapid.SampledFrom(guests).Draw(r, "partner")}}
			if rapid.IntRange(0, 4).Draw(r, "outcome") == 0 {
				answer.Type, answer.Outcome = "Full", "failure"
			}
			batch = append(batch, answer)
			continue
		}
		e := Message{ID: id, Hop: "door", Type: rapid.SampledFrom([]string{"Arrived", "Arrived", "Departed"}).Draw(r, "type"), Key: "x",
			Fields: map[string]any{"guest": rapid.SampledFrom(guests).Draw(r, "guest")}}
		h.came[id] = &arrived{message: e, at: h.m.now}
		batch = append(batch, e)
	}
	for _, m := range batch {
		for _, s := range h.m.Sagas() {
			if a := h.came[m.ID]; a != nil && !s.Ended() && (s.Data["guest"] == m.Fields["guest"] || s.Data["partner"] == m.Fields["guest"]) {
				a.running++
			}
		}
	}
	var claims []string // the sagas that use the event now or later
	if len(batch) == 1 && batch[0].SagaID == "" {
		claims = h.claims(batch[0])
	}
	require.NoError(r, h.m.pass(func(p *pass) error {
		err := p.messages(context.Background(), batch)
		for _, e := range p.stashed {
			if e.For != "" {
				h.came[e.Event.Message].kept++
			}
		}
		return err
	}))
	for _, id := range claims {
		m := batch[0].ID
		kept := slices.ContainsFunc(h.m.stash, func(e Stashed) bool { return e.For == id && e.Event.Message == m })
		require.True(r, kept || slices.Contains(h.came[m].users, id), "%s is not for %s, which awaits it", m, id)
	}
}

// claims returns the sagas that use e when it comes, or that await it by a later step. It returns none if older events are stashed for the next
// saga: a saga may use them first, and then await e no more.
func (h *history) claims(e Message) (ids []string) {
	if slices.ContainsFunc(h.m.stash, func(s Stashed) bool { return s.For == "" && s.Value == e.Fields["guest"] }) {
		return nil
	}
	for _, s := range h.m.Sagas() {
		observed := saga.Event{Kind: saga.Observed, Hop: e.Hop, Type: e.Type, Key: &e.Key, Fields: e.Fields, Message: e.ID}
		if _, fx := saga.Decide(h.definition(s), s, observed, h.m.now); fx.Early || fx.Ignored == "" && fx.Refused == "" {
			ids = append(ids, s.ID())
		}
	}
	return ids
}

func (h *history) definition(s saga.State) *saga.Definition {
	if s.Definition == h.two.Hash() {
		return h.two
	}
	return h.one
}

func (h *history) act(r *rapid.T) {
	if h.sagas == 0 {
		r.Skip("no saga")
	}
	id := rapid.SampledFrom(h.m.Sagas()).Draw(r, "saga").ID()
	e := saga.Event{Kind: rapid.SampledFrom([]saga.Kind{saga.ActAbandon, saga.ActCancel, saga.ActSet}).Draw(r, "kind"), Actor: "ann", Reason: "ticket 1"}
	if e.Kind == saga.ActSet {
		e.Fields = map[string]any{rapid.SampledFrom([]string{"guest", "partner"}).Draw(r, "variable"): rapid.SampledFrom(guests).Draw(r, "value")}
	}
	if _, err := h.m.Act(id, e); err != nil {
		require.ErrorIs(r, err, ErrRefused)
	}
}

func (h *history) move(r *rapid.T) {
	if h.sagas == 0 {
		r.Skip("no saga")
	}
	s := rapid.SampledFrom(h.m.Sagas()).Draw(r, "saga")
	to := h.two
	if s.Definition == h.two.Hash() {
		to = h.one
	}
	err := h.m.pass(func(p *pass) error {
		return p.move(context.Background(), s.ID(), to, saga.Event{Kind: saga.Migrated, To: to.Hash()})
	})
	if err != nil {
		require.ErrorAs(r, err, new(Obstacle))
	}
}

func (h *history) time(r *rapid.T) {
	require.NoError(r, h.m.Advance(time.Duration(rapid.IntRange(1, 80).Draw(r, "minutes"))*time.Minute))
}

func (h *history) check(r *rapid.T) {
	states := make(map[string]saga.State)
	for _, s := range h.m.Sagas() {
		states[s.ID()] = s
	}
	for _, e := range h.m.stash {
		if e.For != "" {
			require.False(r, states[e.For].Ended(), "%s is kept for %s, which has ended", e.Event.Message, e.For)
		}
		for _, id := range slices.Sorted(maps.Keys(states)) {
			s := states[id]
			l := &loaded{d: h.definition(s), state: s}
			if e.For != "" && e.For != id || slices.Contains(h.came[e.Event.Message].users, id) {
				continue
			}
			for _, w := range wantsOf(l) {
				require.False(r, w.Association == e.Association && w.hop == e.Event.Hop && w.event == e.Event.Type,
					"step %s of %s waits, and %s is stashed", w.step, id, e.Event.Message)
			}
		}
	}
	for id, a := range h.came {
		stashed := slices.ContainsFunc(h.m.stash, func(e Stashed) bool { return e.Event.Message == id })
		old := h.m.now.Sub(a.at) >= time.Hour
		require.True(r, stashed || old || len(a.users) > 0 || a.running > 0 && a.kept != 1, "%s is lost: %+v", id, a)
	}
}
