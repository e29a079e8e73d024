package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestAnErrorOfTheSettingsFileQuotesNothingOfIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"database-password: 'x4711", "database-password: *x4711", "x4711", "x4711: 1\nx4711: 2", "? [4711]\n: 1", "a: {? [4711] : 1}", "a: {? {4711: 1} : 1}",
		"database-password: !!int x4711", "database-password: !!binary x4711", "a: &x4711 [*x4711]",
		"a: {<<: x4711}", "x4711\nx: 1", "- x4711\nx4711", "%x4711\n---\n", "!x4711!x 1", "@x4711",
	} {
		var top map[string]any
		err := yaml.Unmarshal([]byte(text), &top)
		require.Error(t, err, text)
		require.NotContains(t, withoutValues(err).Error(), "4711", text)
	}
}
