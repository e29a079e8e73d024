package flow

import (
	"fmt"
	"slices"
	"strings"
)

// A Change is one difference between two versions of a flow.
type Change struct {
	// Hop is the service that changed.
	Hop string `json:"hop"`
	// Breaking reports that consumers or running flows miss something because of the change.
	Breaking bool   `json:"breaking"`
	Text     string `json:"text"`
}

// String returns the change on one line.
func (c Change) String() string {
	if c.Breaking {
		return "breaking: " + c.Hop + ": " + c.Text
	}
	return c.Hop + ": " + c.Text
}

// Diff returns the effects of a change of services on the consumers of their messages, and on flows that are running when the new
// services take over: flows with messages that are sent already and with joins that are partly filled. The old and the new
// services must pass Check. Breaking changes come first. The command `troupe flow verify` checks whether the new flow is sound.
func Diff(old, new []Declaration) []Change {
	d := diff{old: old, new: new}
	d.sent()
	for _, was := range old {
		is := serviceOf(new, was.Hop)
		if is.Hop == "" {
			d.change(was.Hop, false, "the service is gone")
			is.Hop = was.Hop
		}
		d.reactions(was, is)
		d.joins(was, is)
		d.expectations(was, is)
	}
	for _, is := range new {
		if serviceOf(old, is.Hop).Hop == "" {
			d.change(is.Hop, false, "the service is new")
		}
	}
	slices.SortStableFunc(d.changes, func(a, b Change) int {
		switch {
		case a.Breaking == b.Breaking:
			return 0
		case a.Breaking:
			return -1
		}
		return 1
	})
	return d.changes
}

type diff struct {
	old, new []Declaration
	changes  []Change
}

func (d *diff) change(hop string, breaking bool, format string, args ...any) {
	c := Change{hop, breaking, fmt.Sprintf(format, args...)}
	if !slices.Contains(d.changes, c) {
		d.changes = append(d.changes, c)
	}
}

// serviceOf returns the service of a hop, or the zero value.
func serviceOf(services []Declaration, hop string) Declaration {
	for _, s := range services {
		if s.Hop == hop {
			return s
		}
	}
	return Declaration{}
}

// sends returns all messages that a service sends.
func (s Declaration) sends() (all []Message) {
	all = append(all, s.Starts...)
	for _, r := range s.Reactions {
		all = append(append(all, r.Success...), r.Failure...)
	}
	for _, j := range s.Joins {
		all = append(append(all, j.Success...), j.Expired...)
	}
	for _, e := range s.Expectations {
		all = append(append(all, e.Raise), e.Late...)
	}
	return all
}

func holds(ms []Message, m Message) bool {
	return slices.ContainsFunc(ms, func(other Message) bool { return other.key() == m.key() })
}

// consumers names the services, joins and expectations that consume a message.
func consumers(services []Declaration, m Message) (all []string) {
	for _, s := range services {
		for _, r := range s.Reactions {
			if r.On.key() == m.key() {
				all = append(all, s.Hop)
			}
		}
		for _, j := range s.Joins {
			if holds(j.Await, m) || holds(j.Broken, m) {
				all = append(all, "join "+j.Name+" of "+s.Hop)
			}
		}
		for _, e := range s.Expectations {
			if e.After.key() == m.key() || holds(e.Expect, m) {
				all = append(all, e.Name+" of "+s.Hop)
			}
		}
	}
	return all
}

// sent finds messages that are no longer sent, and new ones.
func (d *diff) sent() {
	for _, was := range d.old {
		for _, m := range was.sends() {
			if slices.ContainsFunc(d.new, func(s Declaration) bool { return holds(s.sends(), m) }) {
				continue
			}
			if left := consumers(d.new, m); len(left) > 0 {
				d.change(was.Hop, true, "%s is no longer sent, and is awaited by %s", m.Type, strings.Join(left, ", "))
				continue
			}
			d.change(was.Hop, false, "%s is no longer sent, and no service waits for it", m.Type)
		}
	}
	for _, is := range d.new {
		for _, m := range is.sends() {
			if !slices.ContainsFunc(d.old, func(s Declaration) bool { return holds(s.sends(), m) }) {
				d.change(is.Hop, false, "%s is sent", m.Type)
			}
		}
	}
}

func (d *diff) reactions(was, is Declaration) {
	for _, r := range was.Reactions {
		k := slices.IndexFunc(is.Reactions, func(other Reaction) bool { return other.On.key() == r.On.key() })
		switch {
		case k >= 0:
			d.reaction(was.Hop, r, is.Reactions[k])
		case len(r.Success)+len(r.Failure)+len(r.Undoes) == 0:
			d.change(was.Hop, false, "it no longer listens to %s", r.On.Type)
		case holds(awaited(is), r.On):
			d.change(was.Hop, false, "%s is joined now, and was handled at once", r.On.Type)
		default:
			d.change(was.Hop, true, "it no longer reacts to %s: flows that have sent it stop there; keep the reaction until they have ended", r.On.Type)
		}
	}
	for _, r := range is.Reactions {
		if !slices.ContainsFunc(was.Reactions, func(other Reaction) bool { return other.On.key() == r.On.key() }) {
			d.change(is.Hop, false, "it reacts to %s", r.On.Type)
		}
	}
}

func awaited(s Declaration) (all []Message) {
	for _, j := range s.Joins {
		all = append(all, j.Await...)
	}
	return all
}

func (d *diff) reaction(hop string, was, is Reaction) {
	d.outcome(hop, "after "+was.On.Type, was.Success, is.Success)
	d.outcome(hop, "when "+was.On.Type+" fails", was.Failure, is.Failure)
	for _, typ := range was.Undoes {
		if !slices.Contains(is.Undoes, typ) {
			d.change(hop, true, "it no longer undoes %s after %s: in flows under way it stays done", typ, was.On.Type)
		}
	}
	for _, typ := range is.Undoes {
		if !slices.Contains(was.Undoes, typ) {
			d.change(hop, false, "it undoes %s after %s", typ, was.On.Type)
		}
	}
	if was.Attempts != is.Attempts {
		d.change(hop, false, "%s is tried %s, and was %s", was.On.Type, times(is.Attempts), times(was.Attempts))
	}
}

func times(attempts int) string {
	switch attempts {
	case 0:
		return "as often as the participant has it"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", attempts)
}

// outcome finds messages that an outcome no longer sends although they have consumers before or after the change.
func (d *diff) outcome(hop, when string, was, is []Message) {
	for _, m := range was {
		if holds(is, m) {
			continue
		}
		who := append(consumers(d.old, m), consumers(d.new, m)...)
		slices.Sort(who)
		if who = slices.Compact(who); len(who) > 0 {
			d.change(hop, true, "%s it no longer sends %s, which is awaited by %s", when, m.Type, strings.Join(who, ", "))
		}
	}
	for _, m := range is {
		if !holds(was, m) {
			d.change(hop, false, "%s it sends %s", when, m.Type)
		}
	}
}

func (d *diff) joins(was, is Declaration) {
	for _, j := range was.Joins {
		k := slices.IndexFunc(is.Joins, func(other Join) bool { return other.Name == j.Name })
		if k < 0 {
			d.change(was.Hop, true, "join %s is gone: flows that have some of %s are never joined; keep it until such flows have ended", j.Name, types(j.Await))
			continue
		}
		now := is.Joins[k]
		for _, m := range now.Await {
			if !holds(j.Await, m) {
				d.change(was.Hop, true, "join %s awaits %s, too: flows in which it has come already wait for ever; give the join a new name", j.Name, m.Type)
			}
		}
		for _, m := range j.Await {
			if !holds(now.Await, m) {
				d.change(was.Hop, true, "join %s no longer awaits %s: where all others have come nothing completes it; give the join a new name", j.Name, m.Type)
			}
		}
		for _, m := range j.Broken {
			if !holds(now.Broken, m) {
				d.change(was.Hop, true, "join %s is no longer broken by %s: it waits on", j.Name, m.Type)
			}
		}
		d.outcome(was.Hop, "when join "+j.Name+" is complete", j.Success, now.Success)
		d.outcome(was.Hop, "when join "+j.Name+" is out of time", j.Expired, now.Expired)
		if j.Within != now.Within {
			d.change(was.Hop, false, "join %s waits %s, and waited %s", j.Name, long(now.Within), long(j.Within))
		}
	}
	for _, j := range is.Joins {
		if !slices.ContainsFunc(was.Joins, func(other Join) bool { return other.Name == j.Name }) {
			d.change(is.Hop, false, "join %s is new", j.Name)
		}
	}
}

func long(within string) string {
	if within == "" {
		return "for ever"
	}
	return "for " + within
}

func types(ms []Message) string {
	var all []string
	for _, m := range ms {
		all = append(all, m.Type)
	}
	return strings.Join(all, ", ")
}

func (d *diff) expectations(was, is Declaration) {
	for _, e := range was.Expectations {
		k := slices.IndexFunc(is.Expectations, func(other Expectation) bool { return other.Name == e.Name })
		if k < 0 {
			d.change(was.Hop, false, "%s is expected no longer", e.Name)
			continue
		}
		now := is.Expectations[k]
		if e.After.key() != now.After.key() {
			d.change(was.Hop, false, "%s counts from %s, and did from %s", e.Name, now.After.Type, e.After.Type)
		}
		for _, m := range e.Expect {
			if !holds(now.Expect, m) {
				d.change(was.Hop, true, "%s is no longer met by %s: flows under way in which it comes raise %s", e.Name, m.Type, now.Raise.Type)
			}
		}
		d.outcome(was.Hop, "when "+e.Name+" is not met", []Message{e.Raise}, []Message{now.Raise})
		d.outcome(was.Hop, "when "+e.Name+" is met late", e.Late, now.Late)
		if e.Within != now.Within {
			d.change(was.Hop, false, "%s waits %s, and waited %s", e.Name, long(now.Within), long(e.Within))
		}
	}
	for _, e := range is.Expectations {
		if !slices.ContainsFunc(was.Expectations, func(other Expectation) bool { return other.Name == e.Name }) {
			d.change(is.Hop, false, "%s is expected", e.Name)
		}
	}
}
