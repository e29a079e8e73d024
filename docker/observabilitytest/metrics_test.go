// Package observabilitytest holds alert rules, dashboards and runbooks to each other and to docs/metrics-reference.md, with
// Prometheus's own parser and engine. It is a module of its own, so that Prometheus burdens nobody else.
package observabilitytest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// served is all that is served: the labels of each series that a metric has, and its type.
type served map[string]series

type series struct {
	kind   string
	labels []string
}

// scraped labels come from Prometheus.
var scraped = []string{"instance", "job"}

var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`(?:<br>`[^`]+`)? \\| (counter|gauge|histogram) \\| .* \\| ([^|]*) \\|$")

func reference(t *testing.T) served {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/metrics-reference.md")
	require.NoError(t, err)
	all := make(served)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		labels := append(slices.Clone(scraped), strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })...)
		if m[2] != "histogram" {
			all[m[1]] = series{m[2], labels}
			continue
		}
		all[m[1]+"_count"], all[m[1]+"_sum"] = series{"counter", labels}, series{"counter", labels}
		all[m[1]+"_bucket"] = series{"counter", append(labels, "le")}
	}
	require.Greater(t, len(all), 60)
	return all
}

// An expression is checked against what is served.
type expression struct {
	served
	wrong error
}

// check gives the labels that the result has, or what is wrong.
func (s served) check(text string) (labels []string, err error) {
	parsed, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	e := &expression{served: s}
	if labels = e.labels(parsed); e.wrong != nil {
		return nil, fmt.Errorf("%s: %w", text, e.wrong)
	}
	return labels, nil
}

func (e *expression) want(right bool, format string, about ...any) {
	if !right && e.wrong == nil {
		e.wrong = fmt.Errorf(format, about...)
	}
}

// labels are those that the result of a part may have, once the part is found to be right.
func (e *expression) labels(part parser.Expr) []string {
	switch part := part.(type) {
	case *parser.ParenExpr:
		return e.labels(part.Expr)
	case *parser.UnaryExpr:
		return e.labels(part.Expr)
	case *parser.StepInvariantExpr:
		return e.labels(part.Expr)
	case *parser.MatrixSelector:
		return e.labels(part.VectorSelector)
	case *parser.SubqueryExpr:
		return e.labels(part.Expr)
	case *parser.NumberLiteral, *parser.StringLiteral:
		return nil
	case *parser.VectorSelector:
		return e.selected(part)
	case *parser.Call:
		return e.called(part)
	case *parser.AggregateExpr:
		of := e.labels(part.Expr)
		for _, l := range part.Grouping {
			e.want(slices.Contains(of, l), "it groups by %s, which is not there", l)
		}
		if !part.Without {
			return part.Grouping
		}
		return slices.DeleteFunc(slices.Clone(of), func(l string) bool { return slices.Contains(part.Grouping, l) })
	case *parser.BinaryExpr:
		return e.joined(part)
	}
	e.want(false, "nobody has thought of %T", part)
	return nil
}

func (e *expression) selected(part *parser.VectorSelector) []string {
	known, there := e.served[part.Name]
	e.want(there, "nobody serves %s", part.Name)
	for _, m := range part.LabelMatchers {
		if m.Name != "__name__" {
			e.want(slices.Contains(known.labels, m.Name), "%s has no label %s", part.Name, m.Name)
		}
	}
	return known.labels
}

// Functions that make sense of counters, or of gauges, only.
var (
	ofCounters = []string{"rate", "increase", "irate"}
	ofGauges   = []string{"changes", "delta", "deriv", "min_over_time", "max_over_time", "avg_over_time"}
)

func (e *expression) called(part *parser.Call) (labels []string) {
	for _, a := range part.Args {
		labels = append(labels, e.labels(a)...)
		m, ok := a.(*parser.MatrixSelector)
		if !ok {
			continue
		}
		name := m.VectorSelector.(*parser.VectorSelector).Name
		kind := e.served[name].kind
		e.want(kind == "counter" || !slices.Contains(ofCounters, part.Func.Name), "%s is a %s", name, kind)
		e.want(kind == "gauge" || !slices.Contains(ofGauges, part.Func.Name), "%s is a %s", name, kind)
	}
	if part.Func.Name == "histogram_quantile" {
		e.want(slices.Contains(labels, "le"), "it has no label le")
		labels = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "le" })
	}
	return labels
}

func (e *expression) joined(part *parser.BinaryExpr) []string {
	left, right := e.labels(part.LHS), e.labels(part.RHS)
	if part.VectorMatching != nil {
		for _, l := range part.VectorMatching.MatchingLabels {
			e.want(slices.Contains(left, l) && slices.Contains(right, l), "it joins by %s, which is not on both sides", l)
		}
	}
	if len(left) == 0 {
		return right
	}
	return left
}

func TestWhatIsWrongWithAnExpressionIsSeen(t *testing.T) {
	all := reference(t)
	for text, right := range map[string]bool{
		"sum by (outbox) (outbox_relay_active) == 0":                                               true,
		"sum by (outbox) (rate(outbox_relay_rows_published_total[5m]))":                            true,
		"histogram_quantile(0.9, sum by (le) (rate(outbox_relay_publish_seconds_bucket[5m])))":     true,
		"sum by (outbox) (outbox_relay_activ)":                                                     false,
		"sum by (box) (outbox_relay_active)":                                                       false,
		`outbox_relay_active{box="a"}`:                                                             false,
		"rate(outbox_relay_active[5m])":                                                            false,
		"delta(outbox_relay_rows_published_total[5m])":                                             false,
		"histogram_quantile(0.9, sum by (outbox) (rate(outbox_relay_publish_seconds_bucket[5m])))": false,
		"sum by (outbox) (outbox_relay_active) unless on (instance) outbox_relay_ready":            false,
		"outbox_relay_publish_seconds > 1":                                                         false,
	} {
		_, err := all.check(text)
		require.Equal(t, right, err == nil, "%s: %v", text, err)
	}
}
