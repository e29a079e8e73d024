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
	maxVisits   = 100_000 // and one for each byte of the payload
	maxMistakes = 5       // that an error names
	maxSteps    = 100_000 // of all regular expressions of a schema
)

// A schema implements payload.Schema.
type schema struct {
	title  string
	schema *jsonschema.Schema

	mu     sync.Mutex // of budget: one payload is checked at a time
	budget budget
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

func compile(source payload.Source) (*schema, error) {
	root, err := read([]byte(source.Text))
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	s := &schema{}
	if o, ok := root.(map[string]any); ok {
		s.title, _ = o["title"].(string)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(imports(source.Imports))
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: base + "budget",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return &s.budget, nil
		},
	})
	c.AssertVocabs()
	patterns := patterns{left: maxSteps, compiled: make(map[string]*regexp.Regexp)}
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(base, root); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	if s.schema, err = c.Compile(base); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	return s, nil
}

// imports loads the schemas that a schema refers to, by the names of its references.
type imports map[string]string

func (i imports) Load(address string) (any, error) {
	if text, ok := i[address]; ok {
		return read([]byte(text))
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	for name, text := range i {
		if u.Path == path.Join("/", name) || strings.HasSuffix(u.Path, "/"+name) {
			return read([]byte(text))
		}
	}
	return nil, errors.New("the schema has no such reference in the registry")
}

// patterns compiles the regular expressions of a schema, as long as they have not more than left steps.
type patterns struct {
	left     int
	compiled map[string]*regexp.Regexp // the library compiles each of them twice
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
	if p.left -= steps(parsed); p.left < 0 {
		return nil, errSteps
	}
	p.compiled[text], err = regexp.Compile(text)
	return p.compiled[text], err
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

// budgetSpent is the value of the panic that ends a check: the library has no other way to stop.
type budgetSpent struct{}

var errBudget = errors.New("too many parts of the schema apply to it")

func (b *budget) Validate(*jsonschema.ValidatorContext, any) {
	if *b--; *b < 0 {
		panic(budgetSpent{})
	}
}

// check reads text and checks it. Errors name the paths of mistakes and no values.
func (s *schema) check(text []byte) (value any, err error) {
	if value, err = read(text); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget = budget(maxVisits + len(text))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case budgetSpent:
			err = errBudget
		default:
			panic(p)
		}
	}()
	err = s.schema.Validate(value)
	var mistake *jsonschema.ValidationError
	if errors.As(err, &mistake) {
		var all []string
		mistakes(mistake, &all)
		err = errors.New(strings.Join(all, "; "))
	}
	return value, err
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
