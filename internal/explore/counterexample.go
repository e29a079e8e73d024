package explore

import (
	"encoding/json"
	"fmt"
	"go/format"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// A Counterexample is a shortest execution that breaks an invariant.
type Counterexample struct {
	// Problem describes the broken invariant.
	Problem string `json:"problem"`
	Steps   []Step `json:"steps"`

	d      *saga.Definition
	decide func(*saga.Definition, saga.State, saga.Event, time.Time) (saga.State, saga.Effects)
}

// A Step is one event of the execution.
type Step struct {
	// From and To are hops, "saga", "clock", "operator" or "adversary".
	From string `json:"from"`
	To   string `json:"to"`
	Text string `json:"text"`
	// Event is the saga's input, if the step has one; then Outcome describes the decision.
	Event   *saga.Event `json:"event,omitempty"`
	Outcome string      `json:"outcome,omitempty"`
	Sends   []Sent      `json:"sends,omitempty"`
}

// Sent is a command that the decision sends.
type Sent struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

func (x *explorer) say(s Step) {
	if x.tale != nil {
		*x.tale = append(*x.tale, s)
	}
}

// title returns a description of a command.
func (x *explorer) title(c command) string {
	text := x.m.steps[c.step].sends[c.op] + " (" + x.m.steps[c.step].Name + "/" + operations[c.op]
	if c.epoch > 0 {
		text += ", epoch " + strconv.Itoa(int(c.epoch))
	}
	if c.doubt {
		text += ", in doubt"
	}
	return text + ")"
}

func (x *explorer) sayDecision(e uint16, o *outcome) {
	ev := x.events[e].Event
	s := Step{From: ev.Hop, To: "saga", Event: &ev}
	switch {
	case ev.Kind == saga.Started:
		s.From, s.Text = "saga", "starts"+fieldsText(ev.Fields)
	case ev.Kind == saga.Granted:
		s.From, s.Text = "saga", "has its lock"
	case ev.Kind == saga.Fired:
		s.From, s.Text = "clock", "the deadline "+ev.Deadline+" fires"
	case ev.Kind.Action():
		s.From, s.Text = "operator", strings.TrimSpace(string(ev.Kind)+" "+ev.Step)
		switch ev.Kind {
		case saga.ActResolve:
			s.Text += fmt.Sprintf(", happened: %t", ev.Happened)
		case saga.ActSet:
			s.Text += fieldsText(ev.Fields)
		}
	case ev.Kind == saga.Answered:
		s.Text = ev.Type + " (" + ev.Step + "/" + ev.Operation + ", " + ev.Outcome + ")"
	default:
		s.Text = ev.Type + fieldsText(ev.Fields)
	}
	next := x.sagas[o.next].decided
	switch {
	case o.fx.Ignored != "":
		s.Outcome = "ignored: " + o.fx.Ignored
	case o.fx.Refused != "":
		s.Outcome = "refused: " + o.fx.Refused
	default:
		s.Outcome = string(next.Status) + ": " + phases(next)
	}
	for _, m := range o.sends {
		c := x.commands[m]
		to := "?"
		if hop := x.m.steps[c.step].hop[c.op]; hop >= 0 {
			to = x.m.hops[hop]
		}
		s.Sends = append(s.Sends, Sent{to, x.title(c)})
	}
	x.say(s)
}

// phases describes the phases of a saga's steps: "payment done, inventory intent".
func phases(s saga.State) string {
	var all []string
	for _, ss := range s.Steps {
		all = append(all, ss.Name+" "+string(orWaiting(ss.Phase)))
	}
	return strings.Join(all, ", ")
}

func fieldsText(fields map[string]any) string {
	if len(fields) == 0 {
		return ""
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return ""
	}
	return " " + string(text)
}

// String returns the execution as a text.
func (c *Counterexample) String() string {
	var b strings.Builder
	for i, s := range c.Steps {
		fmt.Fprintf(&b, "%3d  %-12s%s\n", i+1, s.From, s.Text)
		if s.Outcome != "" {
			fmt.Fprintf(&b, "     %-12s  -> %s\n", "", s.Outcome)
		}
		for _, sent := range s.Sends {
			fmt.Fprintf(&b, "     %-12s  -> sends %s to %s\n", "", sent.Text, sent.To)
		}
	}
	fmt.Fprintf(&b, "     %s\n", c.Problem)
	return b.String()
}

// Mermaid returns the execution as a sequence diagram.
func (c *Counterexample) Mermaid() string {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	known := make(map[string]string) // a hop's name may be a keyword of Mermaid
	declare := func(kind, name string) {
		if name == "" || known[name] != "" {
			return
		}
		known[name] = fmt.Sprintf("p%d", len(known))
		fmt.Fprintf(&b, "    %s %s as %s\n", kind, known[name], name)
	}
	for _, s := range c.Steps {
		for _, name := range []string{s.From, s.To} {
			kind := "participant"
			if name == "operator" || name == "adversary" {
				kind = "actor"
			}
			declare(kind, name)
		}
		for _, sent := range s.Sends {
			declare("participant", sent.To)
		}
	}
	text := strings.NewReplacer(";", ",", "#", "", "\n", " ")
	line := func(arrow, from, to, said string) {
		fmt.Fprintf(&b, "    %s%s%s: %s\n", known[from], arrow, known[to], text.Replace(said))
	}
	note := func(over, said string) { fmt.Fprintf(&b, "    Note over %s: %s\n", known[over], text.Replace(said)) }
	for _, s := range c.Steps {
		if s.From == s.To {
			note(s.From, s.Text)
		} else {
			line("->>", s.From, s.To, s.Text)
		}
		if s.Outcome != "" {
			note(s.To, s.Outcome)
		}
		for _, sent := range s.Sends {
			line("->>", "saga", sent.To, sent.Text)
		}
	}
	if len(c.Steps) > 0 {
		note("saga", "BROKEN "+c.Problem)
	}
	return b.String()
}

// GoTest returns a Go file with a test that applies the same events with saga.Decide. The test fails as long as they lead to
// the same state and the same last commands. pkg is the file's package, and file the path of the definition that the test
// reads.
func (c *Counterexample) GoTest(pkg, file string) string {
	var events strings.Builder
	s, now := saga.State{}, moment
	var last saga.Effects
	for _, st := range c.Steps {
		if st.Event == nil {
			fmt.Fprintf(&events, "\t\t// %s: %s\n", st.From, st.Text)
			continue
		}
		if i := slices.IndexFunc(s.Deadlines, func(a saga.Armed) bool {
			return a.Name == st.Event.Deadline && a.At.After(now)
		}); st.Event.Kind == saga.Fired && i >= 0 {
			now = s.Deadlines[i].At
		}
		fmt.Fprintf(&events, "\t\t{%s, %s},\n", durationLiteral(now.Sub(moment)), eventLiteral(*st.Event))
		s, last = c.decide(c.d, s, *st.Event, now)
	}
	var sends []string
	for _, m := range last.Commands {
		sends = append(sends, m.Step+"/"+m.Operation+"/"+strconv.Itoa(m.Epoch))
	}
	text := fmt.Sprintf(goTest, pkg, c.Problem, strconv.Quote(file), events.String(),
		strconv.Quote(fmt.Sprintf("v%d %s: %s; sends %v", s.Version, s.Status, phases(s), sends)), strconv.Quote(c.Problem))
	if formatted, err := format.Source([]byte(text)); err == nil {
		return string(formatted)
	}
	return text // pkg is not a package name
}

const goTest = `package %s

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// %s.
func TestCounterexample(t *testing.T) {
	text, err := os.ReadFile(%s)
	if err != nil {
		t.Fatal(err)
	}
	d, err := saga.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s saga.State
	var fx saga.Effects
	for _, step := range []struct {
		after time.Duration
		event saga.Event
	}{
%s	} {
		s, fx = saga.Decide(d, s, step.event, start.Add(step.after))
	}
	var phases, sends []string
	for _, ss := range s.Steps {
		phase := ss.Phase
		if phase == saga.StepWaiting {
			phase = "waiting"
		}
		phases = append(phases, ss.Name+" "+string(phase))
	}
	for _, c := range fx.Commands {
		sends = append(sends, fmt.Sprintf("%%s/%%s/%%d", c.Step, c.Operation, c.Epoch))
	}
	got := fmt.Sprintf("v%%d %%s: %%s; sends %%v", s.Version, s.Status, strings.Join(phases, ", "), sends)
	if got == %s {
		t.Error(%s)
	}
}
`

func durationLiteral(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d * time.Hour", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d * time.Minute", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%d * time.Second", d/time.Second)
	}
	return fmt.Sprintf("%d", d)
}

func eventLiteral(e saga.Event) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+": "+strconv.Quote(value))
		}
	}
	add("Kind", string(e.Kind))
	add("Step", e.Step)
	add("Operation", e.Operation)
	if e.Epoch > 0 {
		parts = append(parts, "Epoch: "+strconv.Itoa(e.Epoch))
	}
	add("Outcome", e.Outcome)
	add("Hop", e.Hop)
	add("Type", e.Type)
	if len(e.Fields) > 0 {
		parts = append(parts, "Fields: "+literal(e.Fields))
	}
	add("Deadline", e.Deadline)
	add("Reason", e.Reason)
	add("Actor", e.Actor)
	if e.Keep {
		parts = append(parts, "Keep: true")
	}
	if e.Happened {
		parts = append(parts, "Happened: true")
	}
	if e.Locked {
		parts = append(parts, "Locked: true")
	}
	add("Message", e.Message)
	return "saga.Event{" + strings.Join(parts, ", ") + "}"
}

// literal returns v as a Go expression.
func literal(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, strconv.Quote(name)+": "+literal(v[name]))
		}
		return "map[string]any{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, literal(one))
		}
		return "[]any{" + strings.Join(parts, ", ") + "}"
	case nil:
		return "nil"
	case string:
		return strconv.Quote(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return "float64(" + strconv.FormatFloat(v, 'g', -1, 64) + ")"
	}
	return fmt.Sprint(v)
}
