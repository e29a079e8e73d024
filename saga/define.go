package saga

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/topics"
)

// These are the limits of a definition.
const (
	maxSteps     = 64
	maxVariables = 256
	maxFields    = 256 // per mapping
)

var (
	sagaName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	nameRule = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`) // for steps and deadlines
	variable = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	hole     = regexp.MustCompile(`\{([^{}]*)\}`)
)

// Define checks spec and compiles it. Its error is of type Mistakes, and holds all mistakes that were found, not only the first.
//
// It refuses a definition that cannot run. Package verify checks whether a definition that can run is also sound.
func Define(spec Spec) (*Definition, error) {
	d := &Definition{spec: spec, byName: make(map[string]int), exprs: make(map[string]*expr.Expr)}
	c := &compiler{d: d}
	c.names()
	if len(c.mistakes) == 0 {
		c.environments()
		c.compile()
	}
	if len(c.mistakes) == 0 {
		c.bodies()
	}
	if len(c.mistakes) > 0 {
		return nil, c.mistakes
	}
	text, err := canonical(spec)
	if err != nil {
		return nil, err
	}
	d.text, d.hash = text, hashOf(text)
	return d, nil
}

type compiler struct {
	d        *Definition
	mistakes Mistakes

	data, event, starting, due *expr.Env
	setters                    map[string]string // the step that sets a variable; "": the start
}

func (c *compiler) wrong(path, format string, args ...any) {
	c.mistakes = append(c.mistakes, Mistake{Path: path, Text: fmt.Sprintf(format, args...)})
}

// names checks the names, to which all other parts of the definition refer.
func (c *compiler) names() {
	s := c.d.spec
	if !sagaName.MatchString(s.Saga) {
		c.wrong("saga", "%q: want 1 to 63 lower-case letters, digits and dashes", s.Saga)
	}
	if s.Version < 1 {
		c.wrong("version", "%d: want 1 or more", s.Version)
	}
	if len(s.Data) > maxVariables {
		c.wrong("data", "%d variables: at most %d", len(s.Data), maxVariables)
	}
	for _, name := range sortedKeys(s.Data) {
		if !variable.MatchString(name) {
			c.wrong("data."+name, "want a name of lower-case letters, digits and underscores")
		}
		if !s.Data[name].Valid() {
			c.wrong("data."+name, "type %q: want string, int, double, bool or any", s.Data[name])
		}
	}
	if t, ok := s.Data[s.Key]; !ok || t != String {
		c.wrong("key", "%q: want a variable of data of type string", s.Key)
	}
	if len(s.Steps) > maxSteps {
		c.wrong("steps", "%d steps: at most %d", len(s.Steps), maxSteps)
	}
	for i, st := range s.Steps {
		path := fmt.Sprintf("steps[%d].name", i)
		if !nameRule.MatchString(st.Name) {
			c.wrong(path, "%q: want lower-case letters, digits, dashes and underscores", st.Name)
		}
		if _, twice := c.d.byName[st.Name]; twice {
			c.wrong(path, "there are two steps %q", st.Name)
		}
		c.d.byName[st.Name] = i
	}
	c.cycles()
	names := make(map[string]bool)
	for i, dl := range s.Deadlines {
		path := fmt.Sprintf("deadlines[%d].name", i)
		if !nameRule.MatchString(dl.Name) || dl.Name == TimeoutName {
			c.wrong(path, "%q: want lower-case letters, digits, dashes and underscores, and not %q", dl.Name, TimeoutName)
		}
		if names[dl.Name] {
			c.wrong(path, "there are two deadlines %q", dl.Name)
		}
		names[dl.Name] = true
	}
}

// cycles checks needs, and finds for each step all steps that come after it.
func (c *compiler) cycles() {
	steps := c.d.spec.Steps
	behind := make([]map[int]bool, len(steps))
	for i, st := range steps {
		behind[i] = make(map[int]bool)
		c.d.steps = append(c.d.steps, &step{Step: st, index: i})
		for j, name := range st.Needs {
			path := fmt.Sprintf("steps[%d].needs[%d]", i, j)
			before, ok := c.d.byName[name]
			switch {
			case !ok:
				c.wrong(path, "there is no step %q", name)
			case slices.Contains(st.Needs[:j], name):
				c.wrong(path, "%q stands there twice", name)
			default:
				c.d.steps[i].needs = append(c.d.steps[i].needs, before)
			}
		}
		if st.Join != All && st.Join != First && st.Join != Merge {
			c.wrong(fmt.Sprintf("steps[%d].join", i), "%q: want first or merge, or nothing for all", st.Join)
		}
		c.quorum(fmt.Sprintf("steps[%d]", i), st)
	}
	for range steps { // so many rounds are enough for the longest path
		for i, st := range c.d.steps {
			for _, n := range st.needs {
				behind[n][i] = true
				maps.Copy(behind[n], behind[i])
			}
		}
	}
	for i, st := range c.d.steps {
		if behind[i][i] {
			c.wrong(fmt.Sprintf("steps[%d].needs", i), "%q comes before itself", st.Name)
		}
		st.after = slices.Sorted(maps.Keys(behind[i]))
	}
}

// sagaFields lists the fields of the object saga, which expressions can read.
var sagaFields = expr.Fields{
	"id": expr.String, "key": expr.String, "reason": expr.String, "compensated": expr.Any,
}

func (c *compiler) environments() {
	data := expr.Fields(c.d.spec.Data)
	for env, objects := range map[**expr.Env]map[string]expr.Fields{
		&c.data:     {"data": data, "saga": sagaFields},
		&c.event:    {"data": data, "saga": sagaFields, "event": nil},
		&c.starting: {"event": nil},
		&c.due:      {"data": data, "saga": sagaFields, "deadline": nil},
	} {
		made, err := expr.NewEnv(objects)
		if err != nil {
			c.wrong("data", "%s", err)
		}
		*env = made
	}
	c.setters = make(map[string]string)
	c.d.setters = c.setters
}

func (c *compiler) compile() {
	if len(c.mistakes) > 0 {
		return
	}
	d, s := c.d, c.d.spec
	if s.Lock != "" {
		d.lock = c.expr(c.data, "lock", s.Lock, String)
	}
	started := make(map[string]bool)
	for i, st := range s.Start {
		path := fmt.Sprintf("start[%d]", i)
		c.hop(path+".hop", st.Hop)
		c.typ(path+".event", st.Event)
		if started[st.Hop+"/"+st.Event] {
			c.wrong(path, "the event %s of %s starts it twice", st.Event, st.Hop)
		}
		started[st.Hop+"/"+st.Event] = true
		if _, ok := st.Set[s.Key]; !ok {
			c.wrong(path+".set", "it does not set %s, the key", s.Key)
		}
		d.start = append(d.start, start{st, c.condition(c.starting, path+".when", st.When), c.sets(c.starting, path+".set", st.Set, "")})
	}
	for i := range d.steps {
		c.step(fmt.Sprintf("steps[%d]", i), d.steps[i])
	}
	for i, dl := range s.Deadlines {
		d.deadlines = append(d.deadlines, c.deadline(fmt.Sprintf("deadlines[%d]", i), dl))
	}
	for i, e := range s.Ends {
		path := fmt.Sprintf("ends[%d]", i)
		if e.Then != ThenComplete && e.Then != ThenCompensate && e.Then != ThenPark {
			c.wrong(path+".then", "%q: want complete, compensate or park", e.Then)
		}
		if e.When == "" {
			c.wrong(path+".when", "want a condition")
		}
		if len(e.Emit) > 0 && e.Then != ThenComplete {
			c.wrong(path+".emit", "only what completes the saga emits instead of completed")
		}
		x := end{End: e, when: c.condition(c.data, path+".when", e.When), emit: c.emits(c.data, path+".emit", e.Emit)}
		if e.Reason != "" {
			x.reason = c.expr(c.data, path+".reason", e.Reason, String)
		}
		d.ends = append(d.ends, x)
	}
	d.completed = c.emits(c.data, "completed", s.Completed)
	d.compensated = c.emits(c.data, "compensated", s.Compensated)
}

func (c *compiler) step(path string, st *step) {
	st.when = c.condition(c.data, path+".when", st.When)
	st.send = c.command(path, st.Command, st.Call, st.Retry)
	hop, defaults := "", st.Call != nil
	if st.send != nil {
		hop = st.send.hop
	}
	success, failure := st.Success, st.Failure
	if defaults && len(success) == 0 {
		success = []Answer{{Event: CallDone}}
	}
	if defaults && len(failure) == 0 {
		failure = []Answer{{Event: CallRefused}}
	}
	if st.send != nil && len(success) == 0 {
		c.wrong(path+".success", "want the events by which %q is done", st.Name)
	}
	st.success = c.answers(path+".success", success, hop, st)
	st.failure = c.answers(path+".failure", failure, hop, st)
	waits := st.send != nil || len(success)+len(failure) > 0
	if st.Timeout > 0 && !waits {
		c.wrong(path+".timeout", "%q waits for nothing", st.Name)
	}
	if st.Exhausted != Park && st.Exhausted != CompensateThen {
		c.wrong(path+".exhausted", "%q: want compensate, or nothing to park", st.Exhausted)
	}
	if st.Optional {
		c.optional(path, st, waits)
	}
	if st.Pivot && st.send == nil {
		c.wrong(path+".pivot", "%q has no command", st.Name)
	}
	comp := st.Compensation
	if comp == nil {
		return
	}
	if st.send == nil {
		c.wrong(path+".compensation", "%q has no command that it could undo", st.Name)
	}
	if st.Irreversible != "" {
		c.wrong(path+".irreversible", "%q has a compensation", st.Name)
	}
	send := c.command(path+".compensation", comp.Command, comp.Call, comp.Retry)
	if send == nil {
		c.wrong(path+".compensation", "want a command or a call")
		return
	}
	answers := comp.Success
	if comp.Call != nil && len(answers) == 0 {
		answers = []Answer{{Event: CallDone}}
	}
	if len(answers) == 0 {
		c.wrong(path+".compensation.success", "want the events by which %q is undone", st.Name)
	}
	st.back = &compensation{send: send, spec: comp, success: c.answers(path+".compensation.success", answers, send.hop, st)}
	for i, a := range st.back.success {
		if len(a.set) > 0 {
			c.wrong(fmt.Sprintf("%s.compensation.success[%d].set", path, i), "a compensation sets no variables")
		}
	}
}

func (c *compiler) command(path string, cmd *Command, call *Call, r *Retry) *command {
	if r != nil && (r.Attempts < 1 || r.Attempts > 1000 || r.Cap < r.Initial || r.Try <= 0) {
		c.wrong(path+".retry", "want 1 to 1000 attempts, a cap not below initial, and a time for each try")
	}
	switch {
	case cmd != nil && call != nil:
		c.wrong(path, "it has both a command and a call: want one")
	case cmd != nil:
		c.hop(path+".command.hop", cmd.Hop)
		c.typ(path+".command.type", cmd.Type)
		return &command{hop: cmd.Hop, typ: cmd.Type, input: c.fields(c.data, path+".command.input", cmd.Input), retry: r}
	case call != nil:
		c.hop(path+".call.hop", call.Hop)
		switch call.Method {
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		default:
			c.wrong(path+".call.method", "%q: want GET, POST, PUT, PATCH or DELETE", call.Method)
		}
		return &command{
			hop: call.Hop, typ: CallType, method: call.Method, endpoint: c.endpoint(path+".call.endpoint", call.Endpoint),
			input: c.fields(c.data, path+".call.body", call.Body), retry: r,
		}
	}
	return nil
}

func (c *compiler) endpoint(path, text string) (parts []part) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?# \n\t") || strings.Contains(text, "//") {
		c.wrong(path, "%q: want a path such as /reservations/{reservation_id}", text)
	}
	at := 0
	for _, m := range hole.FindAllStringSubmatchIndex(text, -1) {
		name := text[m[2]:m[3]]
		if t, ok := c.d.spec.Data[name]; !ok {
			c.wrong(path, "there is no variable %q", name)
		} else if t != String && t != Int {
			c.wrong(path, "variable %q is of type %s: want string or int", name, t)
		}
		parts = append(parts, part{text[at:m[0]], name})
		at = m[1]
	}
	if strings.ContainsAny(text[at:], "{}") {
		c.wrong(path, "%q: a brace has no other", text)
	}
	return append(parts, part{text: text[at:]})
}

func (c *compiler) answers(path string, as []Answer, hop string, st *step) (all []*answer) {
	for i, a := range as {
		path := fmt.Sprintf("%s[%d]", path, i)
		c.typ(path+".event", a.Event)
		switch {
		case hop != "" && a.Hop != "" && a.Hop != hop:
			c.wrong(path+".hop", "the command goes to %s: only that hop answers it", hop)
		case hop == "" && a.Hop == "":
			c.wrong(path+".hop", "want the hop whose event it is")
		case hop != "" && a.By != nil:
			c.wrong(path+".by", "an answer to a command is known by its headers")
		}
		if a.Hop == "" {
			a.Hop = hop
		}
		c.hop(path+".hop", a.Hop)
		if a.By != nil {
			if _, ok := c.d.spec.Data[a.By.Variable]; !ok {
				c.wrong(path+".by.variable", "there is no variable %q", a.By.Variable)
			}
			if a.By.Field == "" {
				c.wrong(path+".by.field", "want a field of the event")
			}
		}
		x := &answer{Answer: a, when: c.condition(c.event, path+".when", a.When), set: c.sets(c.event, path+".set", a.Set, st.Name)}
		if a.Reason != "" {
			x.reason = c.expr(c.event, path+".reason", a.Reason, String)
		}
		all = append(all, x)
	}
	return all
}

func (c *compiler) deadline(path string, dl Deadline) *deadline {
	x := &deadline{Deadline: dl, since: -1}
	if dl.After <= 0 {
		c.wrong(path+".after", "want how long after")
	}
	if dl.Since != "" {
		i, ok := c.d.byName[dl.Since]
		if !ok {
			c.wrong(path+".since", "there is no step %q", dl.Since)
		}
		x.since = i
	}
	for i, name := range dl.Until {
		at, ok := c.d.byName[name]
		if !ok {
			c.wrong(fmt.Sprintf("%s.until[%d]", path, i), "there is no step %q", name)
		}
		x.until = append(x.until, at)
	}
	if dl.Then != GoOn && dl.Then != ThenComplete && dl.Then != ThenCompensate && dl.Then != ThenPark {
		c.wrong(path+".then", "%q: want complete, compensate or park, or nothing to go on", dl.Then)
	}
	if dl.Then == GoOn && len(dl.Emit) == 0 {
		c.wrong(path, "nothing happens when %q is due: want emit or then", dl.Name)
	}
	x.payload = c.fields(c.data, path+".payload", dl.Payload)
	x.emit = c.emits(c.due, path+".emit", dl.Emit)
	return x
}

func (c *compiler) emits(env *expr.Env, path string, es []Emit) (all []emit) {
	for i, e := range es {
		path := fmt.Sprintf("%s[%d]", path, i)
		c.typ(path+".event", e.Event)
		if e.Hop != "" {
			c.hop(path+".hop", e.Hop)
		}
		all = append(all, emit{e, path, c.fields(env, path+".input", e.Input)})
	}
	return all
}

func (c *compiler) fields(env *expr.Env, path string, m Mapping) (all []field) {
	if len(m) > maxFields {
		c.wrong(path, "%d fields: at most %d", len(m), maxFields)
		return nil
	}
	for _, name := range sortedKeys(m) {
		if name == "" {
			c.wrong(path, "a field without a name")
		}
		all = append(all, field{name, c.expr(env, path+"."+name, m[name], Any)})
	}
	return all
}

// sets compiles a mapping whose fields are variables. A variable is set by one step or by the start, so that no value is
// overwritten unnoticed.
func (c *compiler) sets(env *expr.Env, path string, m Mapping, by string) (all []field) {
	for _, name := range sortedKeys(m) {
		t, ok := c.d.spec.Data[name]
		if !ok {
			c.wrong(path+"."+name, "there is no variable %q", name)
			continue
		}
		if earlier, set := c.setters[name]; set && earlier != by {
			who := "step " + earlier
			if earlier == "" {
				who = "the start"
			}
			c.wrong(path+"."+name, "variable %q is set by %s already", name, who)
		}
		c.setters[name] = by
		all = append(all, field{name, c.expr(env, path+"."+name, m[name], t)})
	}
	return all
}

func (c *compiler) condition(env *expr.Env, path, text string) *expr.Expr {
	if text == "" {
		return nil
	}
	return c.expr(env, path, text, Bool)
}

func (c *compiler) expr(env *expr.Env, path, text string, want Type) *expr.Expr {
	x, err := env.Compile(text, want)
	if err != nil {
		c.wrong(path, "%s", err)
	}
	c.d.exprs[path] = x
	return x
}

func (c *compiler) hop(path, name string) {
	if _, err := topics.NewHop("flow", name); err != nil {
		c.wrong(path, "%s", err)
	}
}

func (c *compiler) typ(path, name string) {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, " \n\t\x00") {
		c.wrong(path, "%q: want the type of a message", name)
	}
}
