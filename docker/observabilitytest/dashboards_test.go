package observabilitytest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dashboard is what the test reads of Grafana's model.
type dashboard struct {
	UID, Title, Description string
	Links                   []struct{ URL, Type string }
	Templating              struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Expr, LegendFormat string
		Datasource         struct{ UID string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(root + "/docker/observability/dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := make(map[string]dashboard)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), path)
		all[filepath.Base(path)] = d
	}
	return all
}

// plain is an expression as Grafana sends it.
func (d dashboard) plain(text string) string {
	text = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(text)
	for _, v := range d.Templating.List {
		text = strings.ReplaceAll(text, "$"+v.Name, ".*")
	}
	return text
}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestEveryExpressionOfADashboardUsesWhatIsServed(t *testing.T) {
	all := reference(t)
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			require.Equal(t, p.Type == "row", len(p.Targets) == 0, "%s: %s", name, p.Title)
			for _, target := range p.Targets {
				text := d.plain(target.Expr)
				require.NotContains(t, text, "$", "%s: %s uses a variable that is not there", name, p.Title)
				labels, err := all.check(text)
				require.NoError(t, err, "%s: %s", name, p.Title)
				for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					require.Contains(t, labels, m[1], "%s: the legend of %s", name, p.Title)
				}
			}
		}
	}
}

var values = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

func TestEveryVariableOfADashboardHasValues(t *testing.T) {
	all := reference(t)
	for name, d := range dashboards(t) {
		kinds := make(map[string]int)
		for _, v := range d.Templating.List {
			kinds[v.Type]++
			if v.Type != "query" {
				continue
			}
			m := values.FindStringSubmatch(v.Query.(map[string]any)["query"].(string))
			require.NotNil(t, m, "%s: %s", name, v.Name)
			require.Contains(t, all[m[1]].labels, m[2], "%s: %s", name, v.Name)
		}
		require.Equal(t, map[string]int{"datasource": 1, "query": 1}, kinds, name)
	}
}

func TestEveryPanelIsDescribedAndStandsByItself(t *testing.T) {
	uids := make(map[string]bool)
	for name, d := range dashboards(t) {
		require.False(t, uids[d.UID], name)
		uids[d.UID] = true
		require.NotEmpty(t, d.Description, name)
		var ids []int
		place := make(map[[2]int]string)
		for _, p := range d.Panels {
			require.NotContains(t, ids, p.ID, "%s: %s", name, p.Title)
			ids = append(ids, p.ID)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Empty(t, place[[2]int{x, y}], "%s: %s lies over another panel", name, p.Title)
					require.Less(t, x, 24, "%s: %s", name, p.Title)
					place[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, "%s: %s", name, p.Title)
			for _, target := range p.Targets {
				require.Equal(t, "${datasource}", target.Datasource.UID, "%s: %s", name, p.Title)
			}
		}
		for _, l := range d.Links {
			if l.Type == "link" {
				path, ours := strings.CutPrefix(l.URL, project)
				require.True(t, ours, l.URL)
				require.FileExists(t, filepath.Join(root, path))
			}
		}
	}
}

// A metric that stands nowhere but in the reference is one that nobody looks at.
func TestEveryMetricIsShownOrAlertedOn(t *testing.T) {
	var used []string
	for _, r := range alerts(t) {
		used = append(used, r.Expr)
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				used = append(used, target.Expr)
			}
		}
	}
	text, err := os.ReadFile(root + "/docs/metrics-reference.md")
	require.NoError(t, err)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		require.True(t, slices.ContainsFunc(used, func(expr string) bool { return strings.Contains(expr, m[1]) }), m[1])
	}
}
