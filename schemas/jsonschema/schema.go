package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/troupe-go/troupe/internal/jsontext"
	"github.com/troupe-go/troupe/internal/payload"
)

// Limits.
const (
	maxLevels   = 200
	maxDigits   = 1100 // characters of a number
	maxExponent = 400
	maxVisits   = 100_000  // and one for each byte of the payload
	maxTried    = 1 << 22  // alternatives, and one for each byte of the payload: some seconds
	maxMistakes = 5        // that an error names
	maxPlaced   = 32 << 10 // bytes of a payload whose mistakes are named
	maxSteps    = 100_000  // of all regular expressions of a schema
	maxMatch    = 1 << 28  // steps that are applied to the bytes of a payload's texts, some seconds
)

// A schema implements payload.Schema.
type schema struct {
	title  string
	schema *jsonschema.Schema
	quick  *jsonschema.Schema // accepts the same values, and collects no mistakes

	mu           sync.Mutex // of the budgets: one payload is checked at a time
	budget       budget
	alternatives budget // the ones that are left to be tried
	match        int    // steps of regular expressions, each for a byte of a text, that are left
}

// name returns the title, or the registry's word for the format.
func (s *schema) name() string {
	if s.title == "" {
		return "JSON"
	}
	return s.title
}

// base is the address of a schema that has none of its own ($id). No request is sent to it.
const base = "https://registry.invalid/"

// quick is the address of a schema that applies another one as a condition: then the library ends at the first mistake in an object, and its
// errors have no paths.
const quick = base + "quick"

func compile(source payload.Source) (*schema, error) {
	root, err := read([]byte(source.Text))
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	s := &schema{match: maxMatch}
	if o, ok := root.(map[string]any); ok {
		s.title, _ = o["title"].(string)
	}
	c := jsonschema.NewCompiler()
	documents := imports{texts: source.Imports, loaded: map[string]any{base: root}}
	c.UseLoader(documents)
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: base + "budget",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return &rules{budget: &s.budget, alternatives: &s.alternatives}, nil
		},
	})
	c.AssertVocabs()
	patterns := patterns{left: maxSteps, match: &s.match, compiled: make(map[string]*pattern)}
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(base, root); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	if s.schema, err = c.Compile(base); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	if err := c.AddResource(quick, map[string]any{"if": map[string]any{"$ref": base}, "else": false}); err != nil {
		return nil, err
	}
	if s.quick, err = c.Compile(quick); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	seen := make(map[*jsonschema.Schema]bool)
	take(s.quick, seen)
	for address, document := range documents.loaded {
		for _, pointer := range dynamic(document, "") {
			if reached, err := c.Compile(address + "#" + pointer); err == nil { // else it is no schema, such as the value of a const
				take(reached, seen)
			}
		}
	}
	return s, nil
}

// dynamic returns the pointers, as fragments of an address, to the parts of a document that have a $dynamicAnchor. No schema need refer to such a
// schema: a $dynamicRef finds it while a value is validated.
func dynamic(part any, pointer string) (all []string) {
	switch v := part.(type) {
	case map[string]any:
		if _, is := v["$dynamicAnchor"].(string); is {
			all = append(all, pointer)
		}
		for name, inner := range v {
			all = append(all, dynamic(inner, pointer+"/"+url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name)))...)
		}
	case []any:
		for i, inner := range v {
			all = append(all, dynamic(inner, pointer+"/"+strconv.Itoa(i))...)
		}
	}
	return all
}

// imports loads the schemas that a schema refers to, by the names of its references. loaded has the documents by their addresses.
type imports struct {
	texts  map[string]string
	loaded map[string]any
}

func (i imports) Load(address string) (document any, err error) {
	text, found := i.texts[address]
	if !found {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		for name, other := range i.texts {
			if u.Path == path.Join("/", name) || strings.HasSuffix(u.Path, "/"+name) {
				text, found = other, true
			}
		}
	}
	if !found {
		return nil, errors.New("the schema has no such reference in the registry")
	}
	document, err = read([]byte(text))
	i.loaded[address] = document
	return document, err
}

// patterns compiles the regular expressions of a schema, as long as they have not more than left steps.
type patterns struct {
	left     int
	match    *int
	compiled map[string]*pattern // the library compiles each of them twice
}

// A pattern is a regular expression that counts the bytes that it is applied to, each as often as it has steps: [a-z]{1,255}@ would be applied to
// a text of 64 MiB for minutes.
type pattern struct {
	*regexp.Regexp
	steps int
	match *int
}

// MatchString implements jsonschema.Regexp.
func (p *pattern) MatchString(text string) bool {
	if *p.match -= p.steps * len(text); *p.match < 0 {
		panic(budgetSpent{})
	}
	return p.Regexp.MatchString(text)
}

var errSteps = fmt.Errorf("its regular expressions have more than %d steps, each character and each repetition counted: shorten a repetition such as {1,1000}", maxSteps)

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if known := p.compiled[text]; known != nil {
		return known, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	n := steps(parsed)
	if p.left -= n; p.left < 0 {
		return nil, errSteps
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.compiled[text] = &pattern{compiled, n, p.match}
	return p.compiled[text], nil
}

// steps estimates the number of instructions of a regular expression, and stops counting at maxSteps+1: (a{100}){100} has 10,000 of them. A
// class, such as the 1,246 runes of \p{L}, is one instruction, and all repetitions share its runes.
func steps(of *syntax.Regexp) int {
	n := 1 + len(of.Rune)
	if of.Op == syntax.OpCharClass {
		n = 1 + len(of.Rune)/64
	}
	for _, inner := range of.Sub {
		n += steps(inner)
	}
	if of.Op == syntax.OpRepeat {
		n *= max(of.Min, of.Max, 1) // at most 1,000
	}
	return min(n, maxSteps+1)
}

// budget is the number of parts of a schema that may still be applied to a payload.
type budget int

var errBudget = errors.New("too many parts of the schema apply to it, or its texts are too long for the schema's regular expressions")

var errPlaces = fmt.Errorf("it does not fit the schema: the places are found in payloads of at most %d bytes", maxPlaced)

// check reads text and checks it. Errors name the paths of mistakes and no values.
func (s *schema) check(text []byte) (value any, err error) {
	if value, err = read(text); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case budgetSpent:
			err = errBudget
		default:
			panic(p)
		}
	}()
	s.refill(len(text))
	if s.quick.Validate(value) == nil {
		return value, nil
	}
	if len(text) > maxPlaced {
		return value, errPlaces
	}
	s.refill(len(text))
	err = s.schema.Validate(value)
	var mistake *jsonschema.ValidationError
	if errors.As(err, &mistake) {
		var all []string
		mistakes(mistake, &all)
		err = errors.New(strings.Join(all, "; "))
	}
	return value, err
}

// refill sets the budgets for a payload of so many bytes.
func (s *schema) refill(size int) {
	s.budget, s.alternatives, s.match = budget(maxVisits+size), budget(maxTried+size), maxMatch
}

// mistakes appends the paths of the innermost mistakes, each with the keyword of the schema that does not hold.
func mistakes(m *jsonschema.ValidationError, all *[]string) {
	if len(m.Causes) == 0 && len(*all) < maxMistakes {
		where := strings.Join(m.InstanceLocation, ".")
		if where == "" {
			where = "the value"
		}
		*all = append(*all, fmt.Sprintf("%s does not fit the schema's %s", where, strings.Join(m.ErrorKind.KeywordPath(), " ")))
	}
	for _, cause := range m.Causes {
		mistakes(cause, all)
	}
}

// read reads one JSON value within the limits.
func read(text []byte) (value any, err error) {
	if err := jsontext.CheckValues(text); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is more behind the value")
	}
	return value, measure(value, 0)
}

func measure(value any, level int) error {
	if level > maxLevels {
		return fmt.Errorf("more than %d levels deep", maxLevels)
	}
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			if err := measure(inner, level+1); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range v {
			if err := measure(inner, level+1); err != nil {
				return err
			}
		}
	case json.Number:
		_, exponent, has := strings.Cut(strings.ToLower(v.String()), "e")
		if has {
			if n, err := strconv.Atoi(exponent); err != nil || n > maxExponent || n < -maxExponent {
				return fmt.Errorf("a number with an exponent above %d", maxExponent)
			}
		}
		if len(v) > maxDigits {
			return fmt.Errorf("a number of more than %d characters", maxDigits)
		}
	}
	return nil
}
