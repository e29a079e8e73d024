package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/flow/watch"
)

// flowsFacts are a page of the flows that a watcher has recorded, as troupe watch list prints them.
type flowsFacts struct {
	Watched []string     `json:"watched"` // the flows in the watcher's database; Flow is one of them
	Flow    string       `json:"flow"`
	SeenAt  *time.Time   `json:"seen_at"` // messages that the brokers had by then have been judged; null: none yet
	Flows   []watch.Flow `json:"flows"`
	Next    string       `json:"next"`

	NoDatabase bool         `json:"-"`
	Kinds      []watch.Kind `json:"-"`
	Asked      url.Values   `json:"-"`
	Filtered   bool         `json:"-"`
}

// ended is the status in the filter that selects both states of an ended flow.
const ended = "ended"

func readFlows(ctx context.Context, a *ask) (any, error) {
	f := flowsFacts{
		Watched: []string{}, Flows: []watch.Flow{}, NoDatabase: a.cfg.Watch == nil, Kinds: watch.Kinds, Asked: a.values,
		Filtered: slices.ContainsFunc([]string{"status", "found", "key", "since", "before"}, func(name string) bool { return a.get(name) != "" }),
	}
	filter := watch.Filter{Found: watch.Kind(a.get("found")), Key: a.values.Get("key")}
	for _, status := range a.values["status"] {
		switch status {
		case "":
		case ended:
			filter.Statuses = append(filter.Statuses, watch.Completed, watch.Compensated)
		default:
			filter.Statuses = append(filter.Statuses, watch.Status(status))
		}
	}
	if err := filter.Validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", err)
	}
	var err error
	if filter.BeganAfter, err = a.moment("since"); err != nil {
		return nil, err
	}
	if filter.BeganBefore, err = a.moment("before"); err != nil {
		return nil, err
	}
	limit, err := a.limit()
	if err != nil || f.NoDatabase {
		return f, err
	}
	if f.Watched, err = watch.Names(ctx, a.cfg.Watch); err != nil || len(f.Watched) == 0 {
		f.Watched = orEmpty(f.Watched)
		return f, err
	}
	desk, err := a.watching(ctx, f.Watched)
	if err != nil {
		return nil, err
	}
	f.Flow, f.SeenAt = desk.Name(), seenAt(desk)
	flows, next, err := desk.Find(ctx, filter, limit, a.get("after"))
	f.Flows, f.Next = orEmpty(flows), next
	return f, err
}

// watching returns the desk of the flow in the request, or of the first one.
func (a *ask) watching(ctx context.Context, names []string) (*watch.Desk, error) {
	if a.cfg.Watch == nil {
		return nil, refuse(http.StatusNotFound, "no watcher's database is configured: troupe console --watch")
	}
	name := a.get("flow")
	if name == "" && len(names) > 0 {
		name = names[0]
	}
	return watch.OpenDesk(ctx, a.cfg.Watch, name)
}

func seenAt(desk *watch.Desk) *time.Time {
	if at := desk.SeenAt(); !at.IsZero() {
		return &at
	}
	return nil
}

// still returns the facts without SeenAt, which always changes.
func (f flowsFacts) still() any {
	f.SeenAt = nil
	return f
}

// Statuses returns the statuses for the filter.
func (f flowsFacts) Statuses() []string {
	all := []string{ended}
	for _, s := range watch.Statuses {
		all = append(all, string(s))
	}
	return all
}

// With returns the query for the same list with another value.
func (f flowsFacts) With(name, value string) string { return with(f.Asked, name, value) }

// flowFacts are the facts that troupe watch show prints.
type flowFacts struct {
	Flow   string      `json:"flow"` // the watched one
	SeenAt *time.Time  `json:"seen_at"`
	Shown  *watch.Flow `json:"shown"`
	// Undeclared has the indexes of the messages that no service declares to send.
	Undeclared []int `json:"undeclared"`
}

func (f flowFacts) title() string { return "Flow " + cmp.Or(clip(f.Shown.Key, 60), f.Shown.ID) }

func readFlow(ctx context.Context, a *ask) (any, error) {
	id := a.values.Get("id")
	if id == "" || len(id) > 1024 {
		return nil, refuse(http.StatusBadRequest, "id: want a flow's correlation id, or a business key")
	}
	desk, err := a.watching(ctx, nil)
	if err != nil {
		return nil, err
	}
	shown, err := desk.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	f := flowFacts{desk.Name(), seenAt(desk), shown, []int{}}
	for i, m := range shown.Messages {
		if !desk.Declares(m.Topic, m.Type) {
			f.Undeclared = append(f.Undeclared, i)
		}
	}
	return f, nil
}

func (f flowFacts) still() any {
	f.SeenAt = nil
	return f
}

// A told is a message of the timeline, with the messages that follow from it.
type told struct {
	watch.Message
	Number     int
	Causes     []int // the messages that follow from it
	Undeclared bool
	After      time.Duration // since the first message
	Says       []string      // findings, and messages that are awaited
}

// By returns the number of the message that this one follows from; 0: it is not shown.
func (t told) By() int { return t.Cause + 1 }

// shownMessages is the maximum number of messages of a flow on a page.
const shownMessages = 1000

// Timeline returns the messages, numbered from 1.
func (f flowFacts) Timeline() []told {
	messages := f.Shown.Messages[:min(len(f.Shown.Messages), shownMessages)]
	all := make([]told, len(messages))
	for i, m := range messages {
		// If clocks differ, a cause may come after a message that follows from it, and may not be shown.
		all[i] = told{Message: m, Number: i + 1, Causes: all[i].Causes, Undeclared: slices.Contains(f.Undeclared, i), After: m.At.Sub(f.Shown.BeganAt)}
		if m.Cause >= 0 && m.Cause < len(all) {
			all[m.Cause].Causes = append(all[m.Cause].Causes, i+1)
		}
		if all[i].Undeclared {
			all[i].Says = append(all[i].Says, "No service declares to send this here.")
		}
	}
	for _, w := range f.Shown.Waiting {
		if w.Message < len(all) {
			all[w.Message].Says = append(all[w.Message].Says, "Awaited until "+w.Until.UTC().Format(time.DateTime)+" UTC: "+w.Text)
		}
	}
	return all
}

// Hidden returns the number of messages that are not shown.
func (f flowFacts) Hidden() int { return max(0, len(f.Shown.Messages)-shownMessages) }

// Took returns the time from the first message to the last.
func (f flowFacts) Took() time.Duration { return f.Shown.LastAt.Sub(f.Shown.BeganAt) }

// drawnMessages is the maximum number of messages of a graph: a larger one is unreadable.
const drawnMessages = 60

// Graph returns the messages as a graph of causes, with the missing and the awaited ones.
func (f flowFacts) Graph() drawing {
	shown := f.Shown
	var boxes []drawnStep
	var edges [][2]int
	var said []string
	add := func(cause int, one drawnStep) {
		if cause >= 0 {
			edges = append(edges, [2]int{cause, len(boxes)})
		}
		boxes = append(boxes, one)
		said = append(said, one.Name+" "+one.Phase)
	}
	n := min(len(shown.Messages), drawnMessages)
	for i, m := range shown.Messages[:n] {
		one := drawnStep{
			Name: clip(cmp.Or(tail(m.Type), "no type"), 22), About: clip(tail(m.Hop)+", "+string(m.Kind), 28),
			Phase: phaseOf(m), Doing: clip(doneAs(m), 34), Marked: slices.Contains(f.Undeclared, i),
		}
		if m.Cause >= n { // not drawn
			m.Cause = -1
		}
		add(m.Cause, one)
	}
	for _, one := range shown.Findings {
		if one.Kind != watch.Late {
			at := slices.IndexFunc(shown.Messages[:n], func(m watch.Message) bool {
				return one.Message != "" && m.ID == one.Message || m.Topic == one.Topic && m.Type == one.Type && m.Key == one.Key
			})
			add(at, drawnStep{Name: clip(expected(one.Expected), 22), About: clip(tail(one.Hop), 28), Phase: "missing", Doing: clip(string(one.Kind), 34)})
		}
	}
	for _, w := range shown.Waiting {
		if w.Message < n {
			hop, rest, _ := strings.Cut(w.Text, ": ")
			want, _, _ := strings.Cut(rest, " within ")
			add(w.Message, drawnStep{Name: clip(tail(want), 22), About: clip(tail(hop), 28), Phase: "waiting", Doing: "awaited"})
		}
	}
	plan := layOut(len(boxes), edges)
	for i := range boxes {
		boxes[i].box = plan.boxes[i]
	}
	return drawing{Width: plan.width, Height: plan.height, Label: "Messages: " + strings.Join(said, ", "), Steps: boxes, Edges: plan.paths}
}

// tail returns the last part of a type's or a hop's name.
func tail(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func expected(types []string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = tail(t)
	}
	return strings.Join(names, " or ")
}

// phaseOf returns the phase that determines a message's colour.
func phaseOf(m watch.Message) string {
	switch m.Outcome {
	case "success":
		return "done"
	case "failure":
		return "refused"
	case "exhausted":
		return "exhausted"
	}
	return "said"
}

func doneAs(m watch.Message) string {
	text := cmp.Or(string(m.Outcome), string(m.Kind))
	if m.Repeats > 0 {
		text += ", sent " + count(m.Repeats+1, "time", "times")
	}
	return text
}
