package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// A phrase is one occurrence of wording that the project does not use.
type phrase struct {
	File       string
	Line       int
	Kind, Text string
}

func (p phrase) String() string { return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Kind, p.Text) }

// A rule is a pattern, and the plain wording that looks like it: plain matches are removed before the pattern is applied.
type rule struct {
	kind    string
	pattern *regexp.Regexp
	plain   *regexp.Regexp // or nil
}

// opening holds for the first words of a comment block: a comment names its subject and says what it does.
var opening = rule{kind: "opens 'X is what'", pattern: regexp.MustCompile(`^\w+(?:\s\w+)? (?:is|are) (?:what|that of|those|the one|who|how)\b`)}

// question matches from an interrogative to the question mark of its sentence; a dot within a name does not end a sentence.
const question = `\b(?:what|who)\b(?:[^.?!]|\.\S)*\?`

// everywhere holds for comments, error texts and documents.
var everywhere = []rule{
	{
		kind:    "what without a noun",
		pattern: regexp.MustCompile(`(?i)\bwhat (?:is|are|was|were|be|comes?|came|stands?|stood|waits?|has|had|became|becomes|goes|went|it|they)\b`),
		plain:   regexp.MustCompile(`(?i)` + question + `|^#+ what .*|\bwhat (?:is|was|goes|went) wrong\b|\bwhat it (?:costs|means)\b`),
	},
	{
		kind: "who without a noun",
		pattern: regexp.MustCompile(`(?i)\b(?:whoever|whom)\b|(?:^|[.;:(] )who [a-z]+|` +
			`\b(?:brokers?|clients?|coordinators?|handlers?|members?|participants?|process|processes|relays?|servers?|services?|sessions?|writers?),? who\b`),
		plain: regexp.MustCompile(`(?i)` + question + `|\b(?:to|for|from|of|with|by) whom\b`),
	},
	{
		kind:    "some, any, nobody",
		pattern: regexp.MustCompile(`(?i)\b(?:somebody|nobody|anybody|somebody's|nobody's)\b`),
	},
	{
		kind:    "stands",
		pattern: regexp.MustCompile(`(?i)\b(?:stands?|stood)\b`),
		plain:   regexp.MustCompile(`(?i)\b(?:stands?|stood) (?:for|by|in for)\b|\bstand-\w+`),
	},
	{
		kind:    "said, told, heard",
		pattern: regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being) (?:said|told|heard|asked)\b`),
		plain: regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being) (?:asked (?:for|to)|told (?:from|apart))\b|` +
			`\b(?:buyer|customer|operator|person|people|user|you)s? (?:is|are|was|were) (?:told|asked)\b`),
	},
	{
		kind:    "literary",
		pattern: regexp.MustCompile(`(?i)\b(?:anew|heed(?:s|ed)?|heirs?|astir|vouch(?:es)?|seen to|sees to it|the way back|beside|those (?:that|who|of|which)|that of)\b`),
		plain:   regexp.MustCompile(`(?i)\b(?:so|such|ensures?|guarantees?|means?|shows?) that of\b`),
	},
}

// named holds for the names of tests: a test is named after a behaviour.
var named = rule{
	kind:    "test named by an id",
	pattern: regexp.MustCompile(`_(?:[A-E]\d\d?|D\d\d)\b|_(?:[A-E]\d\d)_|Defects?_?\d|^TestWh(?:o|at)(?:[A-Z_]|$)`),
}

// span matches code within a document's line.
var span = regexp.MustCompile("`[^`]*`")

func findPhrases(files []source) ([]phrase, error) {
	var found []phrase
	for _, f := range files {
		switch {
		case strings.HasPrefix(f.Path, "internal/house/"): // spells the phrases
		case f.is(".go"):
			p, err := goPhrases(f)
			if err != nil {
				return nil, err
			}
			found = append(found, p...)
		case f.is(".sql"):
			for i, line := range strings.Split(f.Text, "\n") {
				if _, comment, ok := strings.Cut(line, "--"); ok {
					found = append(found, match(f, i+1, comment, everywhere)...)
				}
			}
		default:
			found = append(found, documentPhrases(f)...)
		}
	}
	return found, nil
}

func match(f source, line int, text string, rules []rule) []phrase {
	var found []phrase
	for _, r := range rules {
		left := text
		if r.plain != nil {
			left = r.plain.ReplaceAllString(text, "…")
		}
		for _, m := range r.pattern.FindAllString(left, -1) {
			found = append(found, phrase{f.Path, line, r.kind, strings.TrimSpace(m)})
		}
	}
	return found
}

// goPhrases reads a file's comments, its string literals of three words and more, and the names of its tests.
func goPhrases(f source) ([]phrase, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, f.Path, f.Text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var found []phrase
	for _, c := range file.Comments {
		line := fset.Position(c.Pos()).Line
		text := c.Text()
		if opening.pattern.MatchString(text) {
			found = append(found, phrase{f.Path, line, opening.kind, opening.pattern.FindString(text)})
		}
		found = append(found, match(f, line, strings.Join(strings.Fields(text), " "), everywhere)...)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(n.Value); err == nil && len(strings.Fields(text)) >= 3 {
				found = append(found, match(f, fset.Position(n.Pos()).Line, strings.Join(strings.Fields(text), " "), everywhere)...)
			}
		case *ast.FuncDecl:
			if f.test() && n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				found = append(found, match(f, fset.Position(n.Pos()).Line, n.Name.Name, []rule{named})...)
			}
		}
		return true
	})
	return found, nil
}

// documentPhrases reads a document's paragraphs and tables; blocks of code are left out.
func documentPhrases(f source) []phrase {
	var found []phrase
	code := false
	for i, line := range strings.Split(f.Text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if code || strings.HasPrefix(line, "    ") {
			continue
		}
		found = append(found, match(f, i+1, span.ReplaceAllString(line, "…"), everywhere)...)
	}
	return found
}
