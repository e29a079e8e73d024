package verify

import (
	"context"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// A set contains steps, by index. A definition has at most 64.
type set uint64

func only(i int) set         { return 1 << i }
func (s set) has(i int) bool { return s&only(i) != 0 }
func (s set) count() int     { return bits.OnesCount64(uint64(s)) }
func (s set) steps() []int {
	all := make([]int, 0, s.count())
	for ; s != 0; s &= s - 1 {
		all = append(all, bits.TrailingZeros64(uint64(s)))
	}
	return all
}

// A varset contains variables, by index. A definition has at most 256.
type varset [4]uint64

func (v varset) has(i int) bool { return v[i/64]&(1<<(i%64)) != 0 }
func (v *varset) add(i int)     { v[i/64] |= 1 << (i % 64) }
func (v varset) and(w varset) varset {
	for i := range v {
		v[i] &= w[i]
	}
	return v
}
func (v varset) or(w varset) varset {
	for i := range v {
		v[i] |= w[i]
	}
	return v
}

// A model is a definition in the form that the rules use.
type model struct {
	d     *saga.Definition
	s     saga.Spec
	steps []node
	index map[string]int // step indexes by name
	order []int          // steps, each one after the steps that it needs
	vars  []string       // sorted
	at    map[string]int // variable indexes by name
	given varset         // the variables that are certainly set at the start
	// setter holds, by variable, the step that sets it, byStart or byNobody.
	setter []int
	cases  cases
	runs   []*run // all runs that differ in the steps that begin

	findings []Finding
	said     map[string]bool

	ctx context.Context // of goOn
}

// These values of setter are no steps.
const (
	byStart  = -1
	byNobody = -2
)

type node struct {
	saga.Step
	path     string
	needs    []int
	after    set // all steps after it, directly or not
	sends    bool
	hop      string
	fallible bool // it may be refused, or its event may not come
	turns    bool // it may start the compensation of the saga: it is fallible, or its time-out or its exhaustion does so
	doubtful bool // its command may be in doubt without an action of an operator
	undoable bool // no finding if it is done when the saga compensates: it sends nothing, or has a compensation or a reason
	sure     varset
	maybe    varset // variables that some answer sets; sure: that each success sets
}

func newModel(ctx context.Context, d *saga.Definition) *model {
	m := &model{d: d, s: d.Spec(), index: make(map[string]int), at: make(map[string]int), said: make(map[string]bool), ctx: ctx}
	for name := range m.s.Data {
		m.vars = append(m.vars, name)
	}
	slices.Sort(m.vars)
	for i, name := range m.vars {
		m.at[name] = i
		m.setter = append(m.setter, byNobody)
	}
	for i, st := range m.s.Steps {
		m.index[st.Name] = i
	}
	for i, st := range m.s.Steps {
		m.steps = append(m.steps, m.node(i, st))
	}
	m.sort()
	m.starts()
	m.cases = newCases(m)
	m.walk()
	return m
}

func (m *model) node(i int, st saga.Step) node {
	n := node{Step: st, path: fmt.Sprintf("steps[%d]", i), sends: st.Command != nil || st.Call != nil}
	for _, name := range st.Needs {
		n.needs = append(n.needs, m.index[name])
	}
	n.hop = hopOf(st.Command, st.Call)
	n.fallible = !st.Optional && (st.AtLeast > 0 || n.sends && !st.Retriable || !n.sends && (len(st.Failure) > 0 || st.Timeout > 0))
	n.doubtful = n.sends && (st.Timeout > 0 || st.Exhausted == saga.CompensateThen || st.Optional)
	n.turns = n.fallible ||
		n.sends && !st.Optional && (st.Timeout > 0 && st.Compensation != nil || st.Exhausted == saga.CompensateThen)
	n.undoable = !n.sends || st.Compensation != nil || st.Irreversible != ""
	for k, a := range st.Success {
		var sets varset
		for name := range a.Set {
			sets.add(m.at[name])
			m.setter[m.at[name]] = i
		}
		if k == 0 {
			n.sure = sets
		}
		n.sure, n.maybe = n.sure.and(sets), n.maybe.or(sets)
	}
	for _, a := range st.Failure {
		for name := range a.Set {
			n.maybe.add(m.at[name])
			m.setter[m.at[name]] = i
		}
	}
	n.collects()
	return n
}

func hopOf(command *saga.Command, call *saga.Call) string {
	switch {
	case command != nil:
		return command.Hop
	case call != nil:
		return call.Hop
	}
	return ""
}

// sort computes the order, and the steps after each step.
func (m *model) sort() {
	var placed set
	for len(m.order) < len(m.steps) {
		for i, n := range m.steps {
			if !placed.has(i) && !slices.ContainsFunc(n.needs, func(k int) bool { return !placed.has(k) }) {
				placed |= only(i)
				m.order = append(m.order, i)
			}
		}
	}
	for _, i := range slices.Backward(m.order) {
		for _, k := range m.steps[i].needs {
			m.steps[k].after |= only(i) | m.steps[i].after
		}
	}
}

// starts computes the variables that are set at the start. If no event starts the saga, a caller does, and sets the variables
// that no step sets.
func (m *model) starts() {
	for i, name := range m.vars {
		sets := 0
		for _, st := range m.s.Start {
			if _, does := st.Set[name]; does {
				sets++
			}
		}
		if m.setter[i] == byNobody && (sets > 0 || len(m.s.Start) == 0) {
			m.setter[i] = byStart
		}
		if m.setter[i] == byStart && sets == len(m.s.Start) {
			m.given.add(i)
		}
	}
}

// report adds a finding, once per rule, path and text.
func (m *model) report(id, path string, trace []string, format string, args ...any) {
	m.reportAs(rules.Of(id).Severity, id, path, trace, format, args...)
}

func (m *model) reportAs(s rule.Severity, id, path string, trace []string, format string, args ...any) {
	f := Finding{Rule: id, Severity: s, Path: path, Text: fmt.Sprintf(format, args...), Trace: trace}
	if said := id + " " + path + " " + f.Text; !m.said[said] {
		m.said[said] = true
		m.findings = append(m.findings, f)
	}
}

func (m *model) names(s set) string {
	var names []string
	for _, i := range s.steps() {
		names = append(names, m.steps[i].Name)
	}
	return strings.Join(names, ", ")
}

// A read is a variable that an expression reads.
type read struct {
	path  string
	v     int
	asked bool // the expression tests it with has(), so it may be unset
}

// reads returns the variables that the expressions of the mapping at a path read.
func (m *model) reads(path string, mapping saga.Mapping) (all []read) {
	for _, name := range sortedKeys(mapping) {
		all = append(all, m.readsAt(path+"."+name)...)
	}
	return all
}

func (m *model) readsAt(path string) (all []read) {
	x := m.d.Expr(path)
	if x == nil {
		return nil
	}
	for _, r := range x.Reads() {
		v, known := m.at[r.Field]
		if r.Object != "data" || r.Tested || !known {
			continue
		}
		all = append(all, read{path, v, m.asked(x, r.Field)})
	}
	return all
}

var hole = regexp.MustCompile(`\{([^{}]*)\}`)

// sendReads returns the variables that the command or the call at a path reads.
func (m *model) sendReads(path string, command *saga.Command, call *saga.Call) (all []read) {
	if command != nil {
		return m.reads(path+".command.input", command.Input)
	}
	if call == nil {
		return nil
	}
	for _, h := range hole.FindAllStringSubmatch(call.Endpoint, -1) {
		if v, known := m.at[h[1]]; known {
			all = append(all, read{path + ".call.endpoint", v, false})
		}
	}
	return append(all, m.reads(path+".call.body", call.Body)...)
}

func (m *model) emitReads(path string, es []saga.Emit) (all []read) {
	for i, e := range es {
		all = append(all, m.reads(fmt.Sprintf("%s[%d].input", path, i), e.Input)...)
	}
	return all
}

// asked reports whether x can be evaluated without data.field, because it tests the field with has(). It evaluates x to find out.
func (m *model) asked(x *expr.Expr, field string) bool {
	if !slices.Contains(x.Reads(), expr.Read{Object: "data", Field: field, Tested: true}) {
		return false
	}
	for _, flag := range []bool{false, true} {
		objects := map[string]any{expr.Now: time.Unix(0, 0)}
		for _, r := range x.Reads() {
			fields, _ := objects[r.Object].(map[string]any)
			if fields == nil {
				fields = map[string]any{}
				objects[r.Object] = fields
			}
			if r.Object != "data" || r.Field != field {
				fields[r.Field] = sample(m.s.Data[r.Field], flag)
			}
		}
		withElements(m.s, objects)
		if _, err := x.Eval(objects); err != nil {
			return false
		}
	}
	return true
}

func sample(t saga.Type, flag bool) any {
	switch t {
	case saga.Int:
		return int64(1)
	case saga.Double:
		return 1.0
	case saga.Bool:
		return flag
	}
	return "x"
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
