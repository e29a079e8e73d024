// Package catalogue reads and writes docs/metrics-reference.md, the list of the metrics that every process serves to Prometheus.
// The test of each package that serves metrics writes its section, and compares it with the metrics that are really served; alert
// rules and dashboards are compared with the page.
//
// The package is for tests.
package catalogue

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A Metric is a row of the page.
type Metric struct {
	Name    string // Prometheus' name, without the histograms' _bucket, _sum and _count
	Source  string // OpenTelemetry's name, if it has one
	Type    string // counter, gauge or histogram
	Unit    string // in UCUM, as OpenTelemetry has it
	Meaning string
	Labels  []string // all that a series may have; sorted
}

func (m Metric) row() string {
	labels := make([]string, len(m.Labels))
	for i, l := range m.Labels {
		labels[i] = "`" + l + "`"
	}
	name := "`" + m.Name + "`"
	if m.Source != "" {
		name += "<br>`" + m.Source + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", name, m.Type, m.Unit, strings.ReplaceAll(m.Meaning, "|", `\|`), strings.Join(labels, ", "))
}

// Section is the part of the page between a heading "## title" and the next heading. Its table is made from metrics; the text
// before the table is kept.
type Section struct {
	Title   string
	Page    string // path of the page
	Metrics []Metric
}

const head = "| name | type | unit | meaning | labels |\n|---|---|---|---|---|\n"

// Hold compares the section with the page, or writes it to the page if rewrite is set; how is the command that rewrites it, for
// the failure.
func (s Section) Hold(t testing.TB, rewrite bool, how string) {
	t.Helper()
	text, err := os.ReadFile(s.Page)
	if err != nil {
		t.Fatal(err)
	}
	before, written, after, err := s.find(string(text))
	if err != nil {
		t.Fatal(err)
	}
	table := s.table()
	if rewrite {
		if err := os.WriteFile(s.Page, []byte(before+table+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != table {
		t.Fatalf("%s, %q, is stale: %s\nit says\n%s\nand should say\n%s", s.Page, s.Title, how, written, table)
	}
}

func (s Section) table() string {
	rows := slices.SortedFunc(slices.Values(s.Metrics), func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	text := head
	for _, m := range rows {
		text += m.row()
	}
	return text
}

func (s Section) find(text string) (before, table, after string, err error) {
	start := strings.Index(text, "\n## "+s.Title+"\n")
	if start < 0 {
		return "", "", "", fmt.Errorf("%s has no section %q", s.Page, s.Title)
	}
	from := strings.Index(text[start:], "\n| ")
	if from < 0 {
		return "", "", "", fmt.Errorf("%s: section %q has no table", s.Page, s.Title)
	}
	from += start + 1
	end := from
	for end < len(text) && text[end] == '|' {
		n := strings.IndexByte(text[end:], '\n')
		if n < 0 {
			end = len(text)
			break
		}
		end += n + 1
	}
	return text[:from], text[from:end], text[end:], nil
}

// A Collection accumulates the metrics that OpenTelemetry collects.
type Collection map[string]*Metric // by OpenTelemetry's name

// Add adds one collection. The Prometheus names are the ones that the exporter makes.
func (c Collection) Add(t testing.TB, all metricdata.ResourceMetrics) {
	t.Helper()
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			known := c[m.Name]
			if known == nil {
				known = &Metric{Source: m.Name, Unit: m.Unit, Meaning: m.Description}
				c[m.Name] = known
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				known.Type = "counter"
				for _, p := range data.DataPoints {
					known.carries(p.Attributes)
				}
			case metricdata.Gauge[int64]:
				known.Type = "gauge"
				for _, p := range data.DataPoints {
					known.carries(p.Attributes)
				}
			case metricdata.Gauge[float64]:
				known.Type = "gauge"
				for _, p := range data.DataPoints {
					known.carries(p.Attributes)
				}
			case metricdata.Histogram[int64]:
				known.Type = "histogram"
				for _, p := range data.DataPoints {
					known.carries(p.Attributes)
				}
			case metricdata.Histogram[float64]:
				known.Type = "histogram"
				for _, p := range data.DataPoints {
					known.carries(p.Attributes)
				}
			default:
				t.Fatalf("%s is a %T", m.Name, data)
			}
			known.Name = exported(*known)
		}
	}
}

func (m *Metric) carries(set attribute.Set) {
	for _, a := range set.ToSlice() {
		if label := underscored(string(a.Key)); !slices.Contains(m.Labels, label) {
			m.Labels = append(m.Labels, label)
			slices.Sort(m.Labels)
		}
	}
}

// exported returns the name that the exporter makes of m's.
func exported(m Metric) string {
	name := underscored(m.Source)
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Type == "counter" {
		name += "_total"
	}
	return name
}

func underscored(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Metrics returns the rows.
func (c Collection) Metrics() (all []Metric) {
	for _, m := range c {
		all = append(all, *m)
	}
	return all
}

// Carries reports whether a series of the metric with label was collected.
func (c Collection) Carries(metric, label string) bool {
	return c[metric] != nil && slices.Contains(c[metric].Labels, label)
}
