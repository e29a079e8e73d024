package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// kinds has the kind of personal data of each personal field of an object, by the field's path.
type kinds map[string]string

// within returns the personal fields of the value at a path. Their paths begin at that value; "" is the value itself.
func (k kinds) within(path string) kinds {
	if path == "" {
		return k
	}
	in := kinds{}
	for at, kind := range k {
		if at == path {
			in[""] = kind
		} else if rest, below := strings.CutPrefix(at, path+"."); below {
			in[rest] = kind
		}
	}
	return in
}

func (k kinds) add(path string, others kinds) (added bool) {
	for at, kind := range others {
		at = strings.Trim(path+"."+at, ".")
		added = added || k[at] == ""
		k[at] = kind
	}
	return added
}

// personal finds expressions that do more with an encrypted field than copy it to a field of the same kind.
type personal struct {
	*model
	types map[string]map[string]string
	data  kinds // variables
	grown bool  // data has an entry more
	quiet bool  // report nothing: data is not complete yet
}

func personalFields(m *model, types map[string]map[string]string) {
	p := personal{model: m, types: types, data: kinds{}, grown: true, quiet: true}
	for p.grown { // a variable may be set from another
		p.grown = false
		p.look()
	}
	p.quiet = false
	p.look()
}

func (p *personal) look() {
	for i, s := range p.s.Start {
		path := fmt.Sprintf("start[%d]", i)
		objects := map[string]kinds{"event": p.types[s.Event]}
		p.uses(path+".when", objects)
		p.sets(path+".set", s.Set, objects)
	}
	data := map[string]kinds{"data": p.data}
	p.forbid("lock", data)
	for _, n := range p.steps {
		p.step(n, data)
	}
	for i, d := range p.s.Deadlines {
		path, payload := fmt.Sprintf("deadlines[%d]", i), kinds{}
		for _, name := range sortedKeys(d.Payload) {
			payload.add(name, p.uses(path+".payload."+name, data))
		}
		p.emits(path+".emit", d.Emit, map[string]kinds{"data": p.data, "deadline": payload})
	}
	for i, e := range p.s.Ends {
		path := fmt.Sprintf("ends[%d]", i)
		p.uses(path+".when", data)
		p.forbid(path+".reason", data)
		p.emits(path+".emit", e.Emit, data)
	}
	if c := p.s.Cancel; c != nil {
		p.answers("cancel.events", c.Events, data)
		p.emits("cancel.refused", c.Refused, data)
	}
	p.emits("completed", p.s.Completed, data)
	p.emits("compensated", p.s.Compensated, data)
}

func (p *personal) step(n node, data map[string]kinds) {
	p.uses(n.path+".when", data)
	if n.ForEach != nil {
		data = maps.Clone(data)
		data[n.ForEach.As] = p.uses(n.path+".forEach.list", data)
	}
	p.sends(n.path, n.Command, n.Call, data)
	p.answers(n.path+".success", n.Success, data)
	p.answers(n.path+".failure", n.Failure, data)
	if c := n.Compensation; c != nil {
		p.sends(n.path+".compensation", c.Command, c.Call, data)
		p.answers(n.path+".compensation.success", c.Success, data)
	}
}

func (p *personal) sends(path string, command *saga.Command, call *saga.Call, data map[string]kinds) {
	if command != nil {
		p.fills(path+".command.input", command.Type, command.Input, data)
	}
	if call == nil {
		return
	}
	for _, h := range hole.FindAllStringSubmatch(call.Endpoint, -1) {
		name, kind := "data."+h[1], p.data[h[1]]
		if element, is := data[h[1]]; is { // of a step with forEach
			name, kind = h[1], element[""]
		}
		if kind != "" {
			p.wrong(path+".call.endpoint", name, kind, "use a field that is not personal, such as an id")
		}
	}
	for _, name := range sortedKeys(call.Body) {
		p.forbid(path+".call.body."+name, data)
	}
}

func (p *personal) emits(path string, es []saga.Emit, objects map[string]kinds) {
	for i, e := range es {
		p.fills(fmt.Sprintf("%s[%d].input", path, i), e.Event, e.Input, objects)
	}
}

func (p *personal) answers(path string, as []saga.Answer, data map[string]kinds) {
	for i, a := range as {
		at := fmt.Sprintf("%s[%d]", path, i)
		objects := maps.Clone(data)
		objects["event"] = p.types[a.Event]
		p.uses(at+".when", objects)
		p.forbid(at+".reason", objects)
		p.sets(at+".set", a.Set, objects)
		if a.By == nil {
			continue
		}
		const remedy = "find the saga by a field that is not personal, such as an id"
		if kind := p.types[a.Event][a.By.Field]; kind != "" {
			p.wrong(at+".by.field", "event."+a.By.Field, kind, remedy)
		} else if kind := p.data[a.By.Variable]; kind != "" {
			p.wrong(at+".by.variable", "data."+a.By.Variable, kind, remedy)
		}
	}
}

// sets adds to data the personal fields that a mapping copies to variables.
func (p *personal) sets(path string, m saga.Mapping, objects map[string]kinds) {
	for _, name := range sortedKeys(m) {
		if name == p.s.Key {
			p.forbid(path+"."+name, objects)
			continue
		}
		added := p.data.add(name, p.uses(path+"."+name, objects))
		p.grown = p.grown || added
	}
}

// fills reports the personal fields that a mapping copies to a message's field of another kind, or of none, if the message's schema is known.
func (p *personal) fills(path, typ string, m saga.Mapping, objects map[string]kinds) {
	fields, known := p.types[typ]
	for _, name := range sortedKeys(m) {
		copied := p.uses(path+"."+name, objects)
		for _, rest := range slices.Sorted(maps.Keys(copied)) {
			at := strings.Trim(name+"."+rest, ".")
			switch is, want := fields[at], copied[rest]; {
			case !known || is == want:
			case is == "":
				p.found(path+"."+name, "%s gets the encrypted text of personal data (%s) in %s, which is not marked as personal, and is not decrypted: mark it in the schema",
					typ, want, at)
			default:
				p.found(path+"."+name, "%s gets the encrypted text of personal data (%s) in %s, which is marked as %s, and cannot be decrypted: copy it to a field of the same kind",
					typ, want, at, is)
			}
		}
	}
}

// forbid reports every personal field that an expression uses, also one that it copies.
func (p *personal) forbid(path string, objects map[string]kinds) {
	p.uses(path, objects)
	x := p.d.Expr(path)
	if x == nil {
		return
	}
	for _, u := range x.Uses() {
		if kind := objects[u.Object].within(u.Path)[""]; kind != "" && u.Copied {
			p.wrong(path, nameOf(u), kind, "use a field that is not personal, such as an id")
		}
	}
}

// uses reports the personal fields from which an expression computes something, and returns the ones that it copies, by their paths in the
// result.
func (p *personal) uses(path string, objects map[string]kinds) (copied kinds) {
	copied = kinds{}
	x := p.d.Expr(path)
	if x == nil {
		return copied
	}
	for _, u := range x.Uses() {
		in := objects[u.Object].within(u.Path)
		if u.Copied {
			copied.add(u.At, in)
		} else if kind := in[""]; kind != "" {
			p.wrong(path, nameOf(u), kind, "copy it, compare it with '', or let a service that can decrypt it decide")
		}
	}
	return copied
}

func nameOf(u expr.Use) string { return strings.Trim(u.Object+"."+u.Path, ".") }

func (p *personal) wrong(path, name, kind, remedy string) {
	p.found(path, "%s is personal (%s), and a saga sees its encrypted text: %s", name, kind, remedy)
}

func (p *personal) found(path, format string, args ...any) {
	if !p.quiet {
		p.report("personal-field", path, nil, format, args...)
	}
}
