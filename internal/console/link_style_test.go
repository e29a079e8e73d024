package console

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cssRule    = regexp.MustCompile(`([^{}]+)\{([^{}]*)\}`)
	linkStyle  = regexp.MustCompile(`cursor: pointer|(^|[^-])color: var\(--link\)`)
	onlyClass  = regexp.MustCompile(`^\.([a-z]+)(\.[a-z]+)?(::?[a-z-]+)*$`)
	element    = regexp.MustCompile(`<([a-z]+)((?:\{\{[^}]*\}\}|[^<>{])*)>`)
	classes    = regexp.MustCompile(`class="((?:\{\{[^}]*\}\}|[^"{])*)"`)
	href       = regexp.MustCompile(`\bhref="[^"#]|\bhref="#[a-z]`)
	action     = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// linkClasses returns the classes that give an element the style of a link or a button by themselves. Each other rule with such
// a style has to be for links, buttons and summaries, or for a part of one.
func linkClasses(t *testing.T, css string) map[string]bool {
	found := make(map[string]bool)
	for _, rule := range cssRule.FindAllStringSubmatch(cssComment.ReplaceAllString(css, ""), -1) {
		for selector := range strings.SplitSeq(rule[1], ",") {
			selector = strings.TrimSpace(selector)
			if !linkStyle.MatchString(rule[2]) && !strings.Contains(selector, ":hover") {
				continue
			}
			if class := onlyClass.FindStringSubmatch(selector); class != nil {
				found[class[1]] = true
				continue
			}
			clickable := false
			for part := range strings.FieldsSeq(selector) {
				name, _, _ := strings.Cut(part, ":")
				name, _, _ = strings.Cut(name, "[")
				name, class, _ := strings.Cut(name, ".")
				switch {
				case name == "a", name == "button", name == "summary":
					clickable = true
				case name == "" && class == "button":
					clickable = true
				}
			}
			require.True(t, clickable, "%q looks like a link, and is for elements that are none: %s", selector, rule[2])
		}
	}
	return found
}

// deadLinks returns the elements of a template that look like a link or a button, and are none.
func deadLinks(template string, styled map[string]bool) (dead []string) {
	for _, e := range element.FindAllStringSubmatch(template, -1) {
		looks := e[1] == "a"
		if class := classes.FindStringSubmatch(e[2]); class != nil {
			for name := range strings.FieldsSeq(action.ReplaceAllString(class[1], " ")) {
				looks = looks || styled[name]
			}
		}
		if looks && e[1] != "button" && (e[1] != "a" || !href.MatchString(e[2])) {
			dead = append(dead, e[0])
		}
	}
	return dead
}

// TestEachElementStyledAsALinkHasAnAddress reads the style sheet and the templates: an element with the style of a link or a
// button is a link with an address, or a button.
func TestEachElementStyledAsALinkHasAnAddress(t *testing.T) {
	t.Parallel()
	css, err := os.ReadFile("static/console.css")
	require.NoError(t, err)
	styled := linkClasses(t, string(css))
	require.True(t, styled["button"])
	require.True(t, styled["brand"])

	for _, dead := range []string{
		`<div class="button">Retry</div>`, `<a class="button">Retry</a>`, `<a href="">Retry</a>`, `<a href="#">Retry</a>`,
		`<span class="quiet {{if .X}}apart {{end}}button">`, `<a name="x">`,
	} {
		require.Equal(t, []string{element.FindString(dead)}, deadLinks(dead, styled))
	}
	for _, live := range []string{`<a class="button" href="{{link "/saga" "id" .ID}}">`, `<button class="plain">`, `<a href="#main">`, `<p class="quiet">`} {
		require.Empty(t, deadLinks(live, styled), live)
	}
	templates, err := filepath.Glob("templates/*.html")
	require.NoError(t, err)
	require.NotEmpty(t, templates)
	for _, name := range templates {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Empty(t, deadLinks(string(text), styled), name)
		for _, card := range strings.Split(string(text), "<li data-urgency=")[1:] { // the cards of the overview
			_, inside, _ := strings.Cut(card, ">")
			require.True(t, strings.HasPrefix(inside, `<a href="`), "%s: a card without a link: %.80s", name, inside)
		}
	}
}
