package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

// The types below are a second, independent model: services that behave as declared, with one delivery at a time, in any order,
// to each consumer, and every reachable state. It shares no search with the verifier.

// A letter is a message on its way to one consumer.
type letter struct {
	to      part
	message int
	back    bool // it follows from a failure that made the flow compensate
	breaks  bool // for a join: it is not awaited, but breaks the join
	counts  bool // for an expectation: its time begins with it
}

// A world is a state of one key.
type world struct {
	started []bool
	letters []letter
	handled []bool // per reaction
	forward []bool // it succeeded before the flow compensated
	failed  []bool
	parts   [][]int // per join and message: 0 not arrived, 1 arrived, 2 arrived as part of the compensation
	joins   []string
	armed   []bool
	back    []bool // armed as part of the compensation
	seen    []bool // an expected message has arrived
	expects []string
	count   []int // per message: how often it was sent
}

func newWorld(m *model) world {
	w := world{
		started: make([]bool, len(m.starts)), handled: make([]bool, len(m.reactions)), forward: make([]bool, len(m.reactions)),
		failed: make([]bool, len(m.reactions)), joins: make([]string, len(m.joins)), parts: make([][]int, len(m.joins)),
		armed: make([]bool, len(m.expectations)), back: make([]bool, len(m.expectations)), seen: make([]bool, len(m.expectations)),
		expects: make([]string, len(m.expectations)), count: make([]int, len(m.messages)),
	}
	for i, j := range m.joins {
		w.parts[i] = make([]int, len(j.await))
	}
	return w
}

func (w world) clone() world {
	c := w
	c.started, c.letters, c.handled = slices.Clone(w.started), slices.Clone(w.letters), slices.Clone(w.handled)
	c.forward, c.failed, c.joins = slices.Clone(w.forward), slices.Clone(w.failed), slices.Clone(w.joins)
	c.armed, c.back, c.seen, c.expects = slices.Clone(w.armed), slices.Clone(w.back), slices.Clone(w.seen), slices.Clone(w.expects)
	c.count, c.parts = slices.Clone(w.count), slices.Clone(w.parts)
	for i := range c.parts {
		c.parts[i] = slices.Clone(w.parts[i])
	}
	return c
}

// key is equal for worlds that differ only in the order in which messages were sent.
func (w world) key() string {
	bit := func(of bool) byte {
		if of {
			return 1
		}
		return 0
	}
	letters := make([]string, len(w.letters))
	for i, l := range w.letters {
		letters[i] = string([]byte{byte(l.to.kind), byte(l.to.index), byte(l.message), bit(l.back), bit(l.breaks), bit(l.counts)})
	}
	slices.Sort(letters)
	key := []byte(strings.Join(letters, "") + "|" + strings.Join(w.joins, ",") + "|" + strings.Join(w.expects, ","))
	for _, bits := range [][]bool{w.started, w.handled, w.forward, w.failed, w.armed, w.back, w.seen} {
		for _, is := range bits {
			key = append(key, bit(is))
		}
	}
	for _, numbers := range append(slices.Clip(w.parts), w.count) {
		for _, n := range numbers {
			key = append(key, byte(n))
		}
	}
	return string(key)
}

func (w *world) send(m *model, ids []int, back bool) {
	for _, id := range ids {
		w.count[id]++
		msg := m.messages[id]
		for _, i := range msg.reactions {
			w.letters = append(w.letters, letter{to: part{aReaction, i}, message: id, back: back})
		}
		for _, i := range msg.awaited {
			w.letters = append(w.letters, letter{to: part{aJoin, i}, message: id, back: back})
		}
		for _, i := range msg.breaks {
			w.letters = append(w.letters, letter{to: part{aJoin, i}, message: id, breaks: true})
		}
		for _, i := range msg.after {
			w.letters = append(w.letters, letter{to: part{anExpectation, i}, message: id, back: back, counts: true})
		}
		for _, i := range msg.expected {
			w.letters = append(w.letters, letter{to: part{anExpectation, i}, message: id, back: back})
		}
	}
}

// moves returns all worlds that may come next. must reports whether something happens by itself: a start does not.
func (w world) moves(m *model) (next []world, must bool) {
	do := func(change func(*world)) {
		c := w.clone()
		change(&c)
		next = append(next, c)
	}
	for i, s := range m.starts {
		if !w.started[i] {
			do(func(c *world) { c.started[i] = true; c.send(m, []int{s.message}, false) })
		}
	}
	for i := range w.letters {
		must = true
		for _, outcome := range w.outcomes(m, w.letters[i].to) {
			do(func(c *world) {
				l := c.letters[i]
				c.letters = slices.Delete(c.letters, i, i+1)
				c.deliver(m, l, outcome)
			})
		}
	}
	for i, j := range m.joins {
		heard := slices.ContainsFunc(w.parts[i], func(p int) bool { return p > 0 })
		if heard && w.joins[i] == "" && j.Within != "" {
			must = true
			do(func(c *world) {
				c.joins[i] = "expired"
				c.send(m, j.expired, j.turns || slices.Contains(c.parts[i], 2))
			})
		}
	}
	for i, e := range m.expectations {
		if w.armed[i] && !w.seen[i] && w.expects[i] == "" {
			must = true
			do(func(c *world) { c.expects[i] = "raised"; c.send(m, []int{e.raise}, c.back[i]) })
		}
	}
	return next, must
}

func (w world) outcomes(m *model, to part) []string {
	if to.kind == aReaction && len(m.reactions[to.index].failure) > 0 {
		return []string{"success", "failure"}
	}
	return []string{"success"}
}

func (w *world) deliver(m *model, l letter, outcome string) {
	i := l.to.index
	switch {
	case l.to.kind == aReaction && outcome == "success":
		w.handled[i] = true
		w.forward[i] = w.forward[i] || !l.back
		w.send(m, m.reactions[i].success, l.back)
	case l.to.kind == aReaction:
		w.handled[i], w.failed[i] = true, true
		w.send(m, m.reactions[i].failure, l.back || m.reactions[i].turns)
	case l.to.kind == aJoin && l.breaks:
		if w.joins[i] == "" {
			w.joins[i] = "broken"
		}
	case l.to.kind == aJoin:
		k := slices.Index(m.joins[i].await, l.message)
		if w.parts[i][k] == 0 {
			w.parts[i][k] = 1
			if l.back {
				w.parts[i][k] = 2
			}
		}
		if w.joins[i] == "" && !slices.Contains(w.parts[i], 0) {
			w.joins[i] = "completed"
			w.send(m, m.joins[i].success, slices.Contains(w.parts[i], 2))
		}
	case l.counts:
		if !w.armed[i] {
			w.armed[i], w.back[i] = true, l.back
		}
	default:
		if w.expects[i] == "raised" && !w.seen[i] {
			w.send(m, m.expectations[i].late, w.back[i] || l.back)
		}
		w.seen[i] = true
	}
}

// seenByRunning holds the observations of all runs together.
type seenByRunning struct {
	handled, completed, stuck, awaited, met []bool
	left                                    map[[2]part]bool
	many                                    bool // a message arrived more than twice, which the verifier does not check
	worlds                                  int
	all                                     bool
}

const (
	mostWorlds = 3_000
	mostSent   = 200 // of one message: in flows as small as these, more is a cycle
)

func runAll(m *model) seenByRunning {
	s := seenByRunning{
		handled: make([]bool, len(m.reactions)), completed: make([]bool, len(m.joins)), stuck: make([]bool, len(m.joins)),
		awaited: make([]bool, len(m.expectations)), met: make([]bool, len(m.expectations)), left: make(map[[2]part]bool), all: true,
	}
	known := make(map[string]bool)
	stack := []world{newWorld(m)}
	for len(stack) > 0 {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		key := w.key()
		if known[key] {
			continue
		}
		known[key] = true
		s.worlds++
		if s.worlds > mostWorlds || slices.Max(w.count) > mostSent {
			s.all = false
			return s
		}
		s.many = s.many || slices.Max(w.count) > 2
		next, must := w.moves(m)
		if !must && slices.Contains(w.started, true) {
			s.end(m, w)
		}
		stack = append(stack, next...)
	}
	return s
}

// end examines a world in which nothing happens by itself any more.
func (s *seenByRunning) end(m *model, w world) {
	for i := range m.reactions {
		s.handled[i] = s.handled[i] || w.handled[i]
	}
	for i := range m.joins {
		s.completed[i] = s.completed[i] || w.joins[i] == "completed"
		s.stuck[i] = s.stuck[i] || w.joins[i] == "" && slices.ContainsFunc(w.parts[i], func(p int) bool { return p > 0 })
	}
	for i := range m.expectations {
		s.awaited[i] = s.awaited[i] || w.armed[i]
		s.met[i] = s.met[i] || w.armed[i] && w.seen[i]
	}
	for i, r := range m.reactions {
		if w.failed[i] && r.compensates() {
			return
		}
	}
	for i := range m.reactions {
		r := &m.reactions[i]
		kept := slices.ContainsFunc(r.success, func(id int) bool {
			return !slices.ContainsFunc(r.undoers[id], func(u int) bool { return w.handled[u] })
		})
		if !w.forward[i] || !kept || r.compensates() || r.Irreversible != "" || len(r.success) == 0 {
			continue
		}
		for k, t := range m.reactions {
			if t.turns && w.failed[k] {
				s.left[[2]part{{aReaction, i}, {aReaction, k}}] = true
			}
		}
		for k, j := range m.joins {
			if j.turns && w.joins[k] == "expired" {
				s.left[[2]part{{aReaction, i}, {aJoin, k}}] = true
			}
		}
	}
}

// chance returns a small random flow. It may have cycles if round is set.
func chance(r *rand.Rand, round bool) []flow.Declaration {
	one := func(of int) bool { return r.IntN(of) == 0 }
	n := 2 + r.IntN(2)
	services := make([]flow.Declaration, n)
	for i := range services {
		services[i].Hop = fmt.Sprintf("f.h%d", i)
	}
	var all []flow.Message
	owner := make(map[string]int)
	for i := range 5 + r.IntN(4) {
		of := r.IntN(n)
		all = append(all, flow.Message{Topic: services[of].Hop + ".events", Type: fmt.Sprintf("M%d", i)})
		owner[all[i].Type] = of
	}
	// laterOf returns messages of a service with numbers above at, which it may send after the message at.
	laterOf := func(of, at, most int) (ms []flow.Message) {
		for i, msg := range all {
			if owner[msg.Type] == of && len(ms) < most && (i > at || round && one(3)) && one(2) {
				msg.Last = one(4)
				ms = append(ms, msg)
			}
		}
		return ms
	}
	for i := range 1 + r.IntN(2) {
		of := owner[all[i].Type]
		services[of].Starts = append(services[of].Starts, all[i])
	}
	for i, msg := range all {
		for of := range services {
			if !one(n) {
				continue
			}
			act := flow.Reaction{On: msg, Success: laterOf(of, i, 2), Attempts: r.IntN(3)}
			if one(2) {
				act.Failure = laterOf(of, i, 1)
			}
			if one(8) {
				act.Irreversible = "nobody minds"
			}
			services[of].Reactions = append(services[of].Reactions, act)
		}
	}
	if one(2) {
		of, a, b := r.IntN(n), r.IntN(len(all)), r.IntN(len(all))
		later := laterOf(of, max(a, b), 1)
		if a != b && len(later) > 0 {
			j := flow.Join{Name: "j", Await: []flow.Message{all[a], all[b]}, Success: later}
			if one(3) {
				j.Within, j.Expired = "1h", laterOf(of, max(a, b), 1)
			}
			if c := r.IntN(len(all)); one(2) && c != a && c != b {
				j.Broken = []flow.Message{all[c]}
			}
			services[of].Joins = []flow.Join{j}
		}
	}
	if one(3) {
		of, a, b := r.IntN(n), r.IntN(len(all)), r.IntN(len(all))
		if raise := laterOf(of, a, 1); a != b && len(raise) > 0 {
			e := flow.Expectation{
				Name: "e", After: all[a], Expect: []flow.Message{all[b]}, Within: "1h", Raise: raise[0],
			}
			if one(2) {
				e.Late = laterOf(of, max(a, b), 1)
			}
			services[of].Expectations = []flow.Expectation{e}
		}
	}
	for i := range services {
		undo(r, &services[i])
	}
	return slices.DeleteFunc(services, func(s flow.Declaration) bool { return s.Check() != nil })
}

// undo makes some reactions compensations of others.
func undo(r *rand.Rand, s *flow.Declaration) {
	for i := range s.Reactions {
		from := s.Reactions[r.IntN(len(s.Reactions))].Success
		if r.IntN(2) == 0 && len(from) > 0 {
			s.Reactions[i].Undoes, s.Reactions[i].Irreversible = []string{from[r.IntN(len(from))].Type}, ""
		}
	}
}

func tell(services []flow.Declaration) string {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "%+v\n", s)
	}
	return b.String()
}

func has(found []Finding, rules ...string) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return slices.Contains(rules, f.Rule) })
}

// byChance compares the findings of the verifier with the observations of running the flow. ran reports whether the flow was run
// to all its ends.
func byChance(t *testing.T, seed uint64) (ran bool, rules []string) {
	r := rand.New(rand.NewPCG(seed, 7))
	services := chance(r, seed%4 == 0)
	if len(services) == 0 {
		return false, nil
	}
	m := verified(services)
	for _, f := range m.findings {
		rules = append(rules, f.Rule)
	}
	why := fmt.Sprintf("seed %d\n%s%v", seed, tell(services), m.findings)
	if len(m.starts) == 0 {
		return false, rules
	}
	if has(m.findings, "cycle", "endless-cycle") {
		goesRound(t, m, r, why)
		return true, rules
	}
	seen := runAll(m)
	if !seen.all {
		require.Greater(t, seen.worlds, mostWorlds, "a run does not end, and no cycle is found: %s", why)
		return false, rules
	}
	for i := range m.joins {
		require.True(t, seen.completed[i] || !m.facts.completed[i], "join completes in no run: %s", why)
		require.True(t, seen.stuck[i] || m.facts.stuck[i] == nil, "join is stuck in no run: %s", why)
		require.True(t, m.facts.completed[i] || !seen.completed[i] || seen.many, "a run completes the join: %s", why)
		require.True(t, m.facts.stuck[i] != nil || !seen.stuck[i] || seen.many, "a run leaves the join stuck: %s", why)
	}
	for i := range m.expectations {
		require.Equal(t, seen.awaited[i], m.facts.awaited[i], why)
		require.True(t, seen.met[i] == m.facts.met[i] || seen.many, "expectation: %s", why)
	}
	for key := range m.facts.left {
		require.True(t, seen.left[key], "no run leaves %v done when %v fails: %s", key[0], key[1], why)
	}
	for key := range seen.left {
		_, found := m.facts.left[key]
		require.True(t, found || seen.many, "a run leaves %v done when %v fails: %s", key[0], key[1], why)
	}
	for i, handled := range seen.handled {
		unfed := !m.fed[m.reactions[i].on]
		require.False(t, unfed && handled, "%s is handled: %s", m.reactions[i].On.Type, why)
		require.True(t, handled || unfed || has(m.findings, "join-never"), "%s is never handled: %s", m.reactions[i].On.Type, why)
		require.True(t, handled || has(m.findings, "no-producer", "join-never"), "%s is never handled, and nothing is found: %s", m.reactions[i].On.Type, why)
	}
	return true, rules
}

// goesRound runs a flow through the cycle that was found, again and again. If the cycle is reported as endless, it also searches
// for an end at random.
func goesRound(t *testing.T, m *model, r *rand.Rand, why string) {
	for _, f := range m.findings {
		if f.Rule != "cycle" && f.Rule != "endless-cycle" {
			continue
		}
		w, there := m.enter(f)
		if !there {
			require.True(t, has(m.findings, "join-never"), "no run comes to %v: %s", f.Messages, why)
			continue
		}
		for range 30 {
			next, must := w.moves(m)
			require.True(t, must, why)
			var on []world
			for _, c := range next {
				if m.underWay(c, f) {
					on = append(on, c)
				}
			}
			require.NotEmpty(t, on, "it does not go round: %s", why)
			// Of the worlds that stay in the cycle, take the one with the most rounds.
			w = slices.MaxFunc(on, func(a, b world) int { return m.rounds(a, f) - m.rounds(b, f) })
		}
		require.Greater(t, m.rounds(w, f), 3, "it does not go round: %s", why)
		if f.Rule != "endless-cycle" {
			continue
		}
		for range 200 {
			next, must := w.moves(m)
			require.True(t, must, "it has come to an end: %s", why)
			w = next[r.IntN(len(next))]
			w.trim()
		}
	}
}

// trim drops messages that are on their way to the same consumer more than twice: fewer are enough to show that it goes on.
func (w *world) trim() {
	seen := make(map[letter]int)
	w.letters = slices.DeleteFunc(w.letters, func(l letter) bool { seen[l]++; return seen[l] > 2 })
}

// enter finds a world in which a message of a cycle is on its way to a reaction that continues the cycle.
func (m *model) enter(f Finding) (world, bool) {
	known := make(map[string]bool)
	for queue := []world{newWorld(m)}; len(queue) > 0 && len(known) < mostWorlds; queue = queue[1:] {
		w := queue[0]
		if m.underWay(w, f) {
			return w, true
		}
		if key := w.key(); !known[key] {
			known[key] = true
			next, _ := w.moves(m)
			queue = append(queue, next...)
		}
	}
	return world{}, false
}

func (m *model) underWay(w world, f Finding) bool {
	return slices.ContainsFunc(w.letters, func(l letter) bool {
		if l.to.kind != aReaction || !slices.Contains(f.Messages, m.messages[l.message].typ) {
			return false
		}
		r := m.reactions[l.to.index]
		return slices.ContainsFunc(append(slices.Clip(r.success), r.failure...), func(id int) bool {
			return slices.Contains(f.Messages, m.messages[id].typ)
		})
	})
}

func (m *model) rounds(w world, f Finding) (n int) {
	for id, msg := range m.messages {
		if slices.Contains(f.Messages, msg.typ) {
			n += w.count[id]
		}
	}
	return n
}

func TestFindingsAgreeWithExecutions(t *testing.T) {
	t.Parallel()
	ran, rules := 0, make(map[string]int)
	for seed := range uint64(800) {
		did, found := byChance(t, seed)
		if did {
			ran++
		}
		for _, rule := range slices.Compact(slices.Sorted(slices.Values(found))) {
			rules[rule]++
		}
	}
	require.Greater(t, ran, 600)
	for _, r := range Rules() {
		if r.ID == "reactions" || r.ID == "same-hop" || r.ID == "too-many-cases" || r.ID == "expectation-below-join" { // no execution here has a clock
			continue
		}
		require.Positive(t, rules[r.ID], "chance never breaks %s: %v", r.ID, rules)
	}
	t.Logf("%d flows, %v", ran, rules)
}

func FuzzWhatIsFoundIsWhatRunningShows(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { byChance(t, seed) })
}
