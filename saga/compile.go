package saga

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
)

func (c *compiler) compile() {
	if len(c.mistakes) > 0 {
		return
	}
	d, s := c.d, c.d.spec
	if s.Lock != "" {
		d.lock = c.expr(c.data, "lock", s.Lock, String)
		if d.lock != nil && d.lock.ReadsNow() {
			c.wrong("lock", "%q: two sagas with the same variables have the same lock, so it cannot depend on now", s.Lock)
		}
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
	d.cancel = c.cancel(s.Cancel)
	d.completed = c.emits(c.data, "completed", s.Completed)
	d.compensated = c.emits(c.data, "compensated", s.Compensated)
}

func (c *compiler) step(path string, st *step) {
	st.when = c.condition(c.data, path+".when", st.When)
	if st.ForEach != nil {
		c.forEach(path, st)
		defer c.enter(path, st.ForEach)()
	}
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
		switch t, ok := c.d.spec.Data[name]; {
		case c.each.names(name): // the type of an element is not known
		case !ok:
			c.wrong(path, "there is no variable %q", name)
		case t != String && t != Int:
			c.wrong(path, "variable %q is of type %s: want string or int", name, t)
		default:
			c.d.named[path] = append(c.d.named[path], name)
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
			c.d.named[path+".by"] = []string{a.By.Variable}
		}
		c.form(path+".form", a, st)
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
	for i := range x.emit { // not by index: a saga may be moved to a definition that lists the deadline at another place
		x.emit[i].path = fmt.Sprintf("deadlines.%s.emit[%d]", dl.Name, i)
		if dl.Since != "" {
			x.emit[i].path = fmt.Sprintf("deadlines.%s.since.%s.emit[%d]", dl.Name, dl.Since, i)
		}
	}
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

// sets compiles a mapping whose fields are variables. Only one step, or the start, may set a variable, so that no value is overwritten
// unnoticed. by is the name of the step, or empty for the start.
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
