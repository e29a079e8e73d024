package saga

import (
	"fmt"
	"maps"
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
	// maxExpressions limits the characters of all expressions together. Each expression or form counts perExpression extra. Compiling a
	// megabyte of expressions takes a minute, and hundreds of megabytes of memory.
	maxExpressions = 250_000
	perExpression  = 40
)

var (
	sagaName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	nameRule = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`) // for steps and deadlines
	variable = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	hole     = regexp.MustCompile(`\{([^{}]*)\}`)
)

// Define checks spec and compiles it. Its error is of type Mistakes, and has all mistakes that were found, not only the first.
//
// Define refuses a definition that cannot run. Package verify checks whether a definition that can run is also sound.
func Define(spec Spec) (*Definition, error) {
	d := &Definition{spec: spec, byName: make(map[string]int), exprs: make(map[string]*expr.Expr), named: make(map[string][]string)}
	c := &compiler{d: d}
	c.names()
	if len(c.mistakes) == 0 {
		c.environments()
		c.compile()
	}
	if len(c.mistakes) == 0 {
		c.bodies()
		c.makeItems()
	}
	if len(c.mistakes) > 0 {
		return nil, c.mistakes
	}
	text, err := canonical(spec)
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, Mistakes{{Text: fmt.Sprintf("the definition has %d bytes in its stored form, which is indented: at most %d", len(text), maxSize)}}
	}
	d.text, d.hash = text, hashOf(text)
	return d, nil
}

type compiler struct {
	d        *Definition
	mistakes Mistakes

	data, event, starting, due *expr.Env
	each                       *ForEach          // the ForEach of the step that is compiled, or nil
	compiled                   int               // the characters so far, as maxExpressions counts them
	setters                    map[string]string // by variable: the step that sets it, or "" for the start
}

func (c *compiler) wrong(path, format string, args ...any) {
	c.mistakes = append(c.mistakes, Mistake{Path: path, Text: fmt.Sprintf(format, args...)})
}

// names checks the names to which other parts of the definition refer.
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
		if name == expr.Now {
			c.wrong("data."+name, "expressions read the time of the decision as now: want another name")
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
	c.allItems()
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

// cycles checks Needs and Join of the steps, and finds for each step all steps that come after it.
func (c *compiler) cycles() {
	steps := c.d.spec.Steps
	behind := make([]map[int]bool, len(steps))
	for i, st := range steps {
		behind[i] = make(map[int]bool)
		c.d.steps = append(c.d.steps, &step{Step: st, index: i, of: -1})
		for j, name := range st.Needs {
			path := fmt.Sprintf("steps[%d].needs[%d]", i, j)
			before, ok := c.d.byName[name]
			switch {
			case !ok:
				c.wrong(path, "there is no step %q", name)
			case slices.Contains(st.Needs[:j], name):
				c.wrong(path, "%q is listed twice", name)
			default:
				c.d.steps[i].needs = append(c.d.steps[i].needs, before)
			}
		}
		if st.Join != All && st.Join != First && st.Join != Merge {
			c.wrong(fmt.Sprintf("steps[%d].join", i), "%q: want first or merge, or nothing for all", st.Join)
		}
		c.quorum(fmt.Sprintf("steps[%d]", i), st)
	}
	for range steps { // the longest path has at most as many steps as there are rounds
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

func (c *compiler) expr(env *expr.Env, path, text string, want Type) *expr.Expr {
	if !c.compiles(path, len(text)) {
		return nil
	}
	x, err := env.Compile(text, want)
	if err != nil {
		c.wrong(path, "%s", err)
	}
	c.d.exprs[path] = x
	return x
}

// compiles counts the characters of an expression or a form. It reports whether the definition is still within maxExpressions.
func (c *compiler) compiles(path string, length int) bool {
	was := c.compiled
	c.compiled += length + perExpression
	if was <= maxExpressions && c.compiled > maxExpressions {
		c.wrong(path, "the expressions have more than %d characters (each expression or form counts %d extra): split the definition", maxExpressions, perExpression)
	}
	return c.compiled <= maxExpressions
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
