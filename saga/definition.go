package saga

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
)

// These are names of messages, deadlines and operations. A Call is sent to the ambassador as the command CallType with the fields
// method, path and body. Its answers have the fields status and body.
const (
	CallType     = "troupe.Call"
	CallDone     = "troupe.CallDone"
	CallRefused  = "troupe.CallRefused"
	NothingType  = "troupe.Nothing" // the answer of a participant whose barrier did not run the handler
	TimeoutName  = "timeout"        // the name of the saga's time-out; for a step it is the step's name with stepTimeout
	backTimeout  = "compensate.timeout"
	stepTimeout  = "." + TimeoutName
	compTimeout  = "." + backTimeout
	forwardOp    = "forward"
	compensateOp = "compensate"
)

// A Definition is a Spec that has been checked and compiled. It is immutable and safe for concurrent use.
type Definition struct {
	spec        Spec
	text        []byte // the canonical JSON
	hash        string
	steps       []*step
	byName      map[string]int
	items       []span // by step, set by withItems; nil: steps has no items
	start       []start
	lock        *expr.Expr
	deadlines   []*deadline
	ends        []end
	cancel      *cancel // nil: the saga cannot be cancelled
	completed   []emit
	compensated []emit
	exprs       map[string]*expr.Expr // by path
	named       map[string][]string   // by path: the variables in endpoints and associations, which are no expressions
	personal    map[string]map[string]string
	setters     map[string]string // by variable: the step that sets it, or "" for the start
}

type step struct {
	Step
	index   int
	needs   []int
	after   []int // all steps that come after this one, directly or not
	when    *expr.Expr
	send    *command
	success []*answer
	failure []*answer
	back    *compensation
	each    *each // nil: the step runs once
	of      int   // for an item: the index of its step; -1 for a step
	item    int   // for an item: its index in the list
	forms   []form
}

type compensation struct {
	send    *command
	success []*answer
	spec    *Compensation
}

type command struct {
	hop, typ string
	input    []field
	method   string
	endpoint []part
	retry    *Retry
}

type part struct {
	text     string
	variable string
}

type field struct {
	name string
	is   *expr.Expr
}

type answer struct {
	Answer
	when   *expr.Expr
	set    []field
	reason *expr.Expr
}

type start struct {
	Start
	when *expr.Expr
	set  []field
}

type deadline struct {
	Deadline
	payload []field
	emit    []emit
	since   int // the index of a step; -1: the saga's start
	until   []int
}

type end struct {
	End
	when, reason *expr.Expr
	emit         []emit
}

type emit struct {
	Emit
	path  string
	input []field
}

// Spec returns the Spec that the definition was compiled from. Do not change it.
func (d *Definition) Spec() Spec { return d.spec }

// Hash returns the hexadecimal SHA-256 of the canonical JSON. Equal hashes mean equal definitions.
func (d *Definition) Hash() string { return d.hash }

// JSON returns the canonical form: fields in the order of the schema, names sorted, two spaces of indent, a newline at the end.
func (d *Definition) JSON() []byte { return bytes.Clone(d.text) }

// String returns the name with the version, such as order v2.
func (d *Definition) String() string { return fmt.Sprintf("%s v%d", d.spec.Saga, d.spec.Version) }

// Expr returns the compiled expression at a path, such as steps[1].when, or nil if there is none. Tools that analyse definitions
// use it.
func (d *Definition) Expr(path string) *expr.Expr { return d.exprs[path] }

// Personal returns the kind of each personal field, by the type of the message and the path of the field. It has only the fields of
// messages that CommandOf, AnswerOf, StartOf and EmitOf have declared with a codec of package schemas/personal.
func (d *Definition) Personal() map[string]map[string]string { return d.personal }

// Hops returns the hops whose events the saga consumes, sorted.
func (d *Definition) Hops() []string {
	var hops []string
	for _, s := range d.start {
		hops = append(hops, s.Hop)
	}
	for _, s := range d.steps {
		for _, a := range slices.Concat(s.success, s.failure) {
			hops = append(hops, a.Hop)
		}
		if s.send != nil {
			hops = append(hops, s.send.hop)
		}
		if s.back != nil {
			hops = append(hops, s.back.send.hop)
		}
	}
	if d.cancel != nil {
		for _, a := range d.cancel.events {
			hops = append(hops, a.Hop)
		}
	}
	slices.Sort(hops)
	return slices.Compact(hops)
}

// Awaited returns the events that answer no command and move a saga: steps await them, or they cancel the saga. Each has the rule by
// which it finds the saga.
func (d *Definition) Awaited() []Answer {
	var all []Answer
	for _, s := range d.steps {
		if s.send != nil {
			continue
		}
		for _, a := range slices.Concat(s.success, s.failure) {
			all = append(all, a.Answer)
		}
	}
	if d.cancel != nil {
		for _, a := range d.cancel.events {
			all = append(all, a.Answer)
		}
	}
	return all
}

// Concerns reports whether an event that answers no command starts an instance, or may be awaited by one.
func (d *Definition) Concerns(hop, event string) bool {
	for _, s := range d.start {
		if s.Hop == hop && s.Event == event {
			return true
		}
	}
	for _, a := range d.Awaited() {
		if a.Hop == hop && a.Event == event {
			return true
		}
	}
	return false
}

// StartedBy reports whether an event with these fields starts an instance, and returns the variables that the event sets. StartedBy
// calls now only if an expression of the start reads the time.
func (d *Definition) StartedBy(hop, event string, fields map[string]any, now func() (time.Time, error)) (data map[string]any, starts bool, err error) {
	objects := map[string]any{"event": fields}
	for _, s := range d.start {
		if s.Hop != hop || s.Event != event {
			continue
		}
		if s.readsNow() {
			at, err := now()
			if err != nil {
				return nil, false, err
			}
			objects[expr.Now] = at.UTC().Truncate(time.Microsecond)
		}
		if s.when != nil {
			if holds, err := s.when.Holds(objects); err != nil || !holds {
				return nil, false, err
			}
		}
		data, err = d.variables(s.set, objects)
		return data, err == nil, err
	}
	return nil, false, nil
}

func (s start) readsNow() bool {
	return s.when != nil && s.when.ReadsNow() || slices.ContainsFunc(s.set, func(f field) bool { return f.is.ReadsNow() })
}

// WithKey returns fields with the variable of the key added. It is an error if fields has another value for that variable.
func (d *Definition) WithKey(fields map[string]any, key string) (map[string]any, error) {
	all := make(map[string]any, len(fields)+1)
	maps.Copy(all, fields)
	if was, set := all[d.spec.Key]; set && was != key {
		return nil, fmt.Errorf("the variable %s is the key: want %q there too, or leave it out", d.spec.Key, key)
	}
	all[d.spec.Key] = key
	return all, nil
}

// Start checks the variables that an instance starts with. The values in fields are as JSON decodes them; Start returns them converted
// to the types of the variables, and the saga's key.
func (d *Definition) Start(fields map[string]any) (key string, data map[string]any, err error) {
	data = make(map[string]any, len(fields))
	for name, v := range fields {
		if data[name], err = d.coerce(name, v); err != nil {
			return "", nil, err
		}
	}
	key, _ = data[d.spec.Key].(string)
	if key == "" {
		return "", nil, fmt.Errorf("saga %s: the variable %s, which is its key, has no value", d.spec.Saga, d.spec.Key)
	}
	if strings.Contains(key, "\x00") {
		return "", nil, fmt.Errorf("saga %s: the variable %s, which is its key, has the character U+0000, which no key can have", d.spec.Saga, d.spec.Key)
	}
	return key, data, nil
}

func (d *Definition) variables(set []field, objects map[string]any) (map[string]any, error) {
	data := make(map[string]any, len(set))
	for _, f := range set {
		v, err := f.is.Eval(objects)
		if err == nil {
			v, err = d.coerce(f.name, v)
		}
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", f.name, err)
		}
		data[f.name] = v
	}
	return data, nil
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 80 {
		text = append(text[:77], "..."...)
	}
	return string(text)
}

// DataHash returns a hash of the variables that a saga is started with. data is a result of Start.
func DataHash(data map[string]any) string {
	text, err := json.Marshal(data) // Marshal sorts the names
	if err != nil {
		return ""
	}
	return hashOf(text)
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fill returns the endpoint with the values of its variables. Each value is escaped, so that it stays within its path segment.
func fill(parts []part, data map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
		if p.variable == "" {
			continue
		}
		v, set := data[p.variable]
		if !set {
			return "", fmt.Errorf("endpoint: data.%s is %w", p.variable, expr.ErrUnset)
		}
		switch v.(type) {
		case nil:
			return "", fmt.Errorf("endpoint: %s is null", p.variable)
		case map[string]any, []any: // only an element of a list can be one, since compile does not know its type
			return "", fmt.Errorf("endpoint: %s is an object or a list, and a path has texts and numbers only", p.variable)
		}
		text := expr.Text(v)
		if text == "" || text == "." || text == ".." {
			return "", fmt.Errorf("endpoint: data.%s is %q, which would name another place", p.variable, text)
		}
		b.WriteString(url.PathEscape(text))
	}
	return b.String(), nil
}
