package observabilitytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	runbooks = root + "/docs/runbooks"
	// project is where the documents are; what begins with it stands in this repository.
	project = "https://github.com/troupe-go/troupe/blob/main/"
)

// A rule is what the test reads of one. That the file is right as a whole says promtool check rules.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile(root + "/docker/observability/alerts.yml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

var placeholder = regexp.MustCompile(`\$labels\.(\w+)`)

func TestEveryAlertUsesWhatIsServedAndSaysWhatItIsAbout(t *testing.T) {
	all, seen := reference(t), make(map[string]bool)
	for _, r := range alerts(t) {
		require.False(t, seen[r.Alert], r.Alert)
		seen[r.Alert] = true
		labels, err := all.check(r.Expr)
		require.NoError(t, err, r.Alert)
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.Len(t, r.Annotations, 3, r.Alert)
		for name, text := range r.Annotations {
			for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
				require.Contains(t, labels, m[1], "%s: its %s", r.Alert, name)
			}
		}
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
	}
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	index, err := os.ReadFile(runbooks + "/README.md")
	require.NoError(t, err)
	named := make(map[string]bool)
	for _, r := range alerts(t) {
		require.Equal(t, project+"docs/runbooks/"+r.Alert+".md", r.Annotations["runbook_url"])
		page, err := os.ReadFile(filepath.Join(runbooks, r.Alert+".md"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(page), "# "+r.Alert+"\n\n## What it means\n\n"), r.Alert)
		require.Regexp(t, `(?s)\n## See it\n\n.*\n## Do\n\n`, string(page), r.Alert)
		require.Contains(t, string(index), "| ["+r.Alert+"]("+r.Alert+".md) | "+r.Labels["severity"]+" | ", "the index of runbooks")
		named[r.Alert+".md"] = true
	}
	pages, err := os.ReadDir(runbooks)
	require.NoError(t, err)
	for _, p := range pages {
		require.True(t, p.Name() == "README.md" || named[p.Name()], "%s is of no alert", p.Name())
	}
}

// Metrics that a runbook names are there, too.
func TestRunbooksNameMetricsThatAreServed(t *testing.T) {
	all := reference(t)
	pages, err := filepath.Glob(runbooks + "/*.md")
	require.NoError(t, err)
	for _, path := range pages {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`((?:outbox_relay|troupe|messaging)_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
			_, metric := all[m[1]]
			_, histogram := all[m[1]+"_bucket"]
			require.True(t, metric || histogram || all.label(m[1]), "%s: %s", filepath.Base(path), m[1])
		}
	}
}

func (s served) label(name string) bool {
	for _, one := range s {
		for _, l := range one.labels {
			if l == name {
				return true
			}
		}
	}
	return false
}
