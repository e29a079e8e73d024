// Package composetest loads docker-compose.yml as docker compose does, and holds it to the rules that nothing else
// checks. It is a module of its own, so that the library behind it burdens nobody else.
package composetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

var services = []string{"order", "payment", "inventory", "shipping"}

func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithName("troupe"))
	require.NoError(t, err)
	project, err := options.LoadProject(context.Background())
	require.NoError(t, err)
	return project
}

func TestWhoeverIsWaitedForHasAHealthCheck(t *testing.T) {
	project := load(t)
	for name, s := range project.Services {
		for on, d := range s.DependsOn {
			require.Equal(t, types.ServiceConditionHealthy, d.Condition, "%s waits for %s by %s", name, on, d.Condition)
			require.NotNil(t, project.Services[on].HealthCheck, "%s waits for the health of %s, which has no check", name, on)
		}
	}
}

func TestPortsArePublishedOnLoopbackOnly(t *testing.T) {
	for name, s := range load(t).Services {
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, "%s publishes %s", name, p.Published)
		}
	}
}

func TestOurContainersCanWriteNothingAndAreNobody(t *testing.T) {
	for name, s := range load(t).Services {
		if s.Build == nil {
			continue
		}
		require.True(t, s.ReadOnly, name)
		require.NotEmpty(t, s.User, name)
		require.False(t, strings.HasPrefix(s.User, "0"), name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.Equal(t, []string{"CMD", "/app", "healthcheck"}, []string(s.HealthCheck.Test), name)
	}
}

func TestEveryServiceHasARelayBesideItOnTheSameDatabase(t *testing.T) {
	project := load(t)
	seen := map[string]bool{}
	for _, name := range services {
		service, relay := project.Services[name], project.Services[name+"-relay"]
		require.Equal(t, "demo-"+name, service.Build.Target)
		require.Equal(t, "outbox-relay", relay.Build.Target)
		url := *service.Environment["DATABASE_URL"]
		require.Equal(t, url, *relay.Environment["DATABASE_URL"])
		require.False(t, seen[url], "%s shares its database", name)
		seen[url] = true
	}
}

func TestImagesArePlainTagsAndBuildsShareAStage(t *testing.T) {
	contexts := map[string]bool{}
	for name, s := range load(t).Services {
		if s.Build != nil {
			contexts[s.Build.Context] = true
			continue
		}
		require.NotContains(t, s.Image, "@", "%s pins a digest, which a stand-in cannot serve", name)
		require.False(t, strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":"), "%s: %s", name, s.Image)
	}
	require.Len(t, contexts, 1)
}

func TestWhatMustSurviveARestartIsInANamedVolume(t *testing.T) {
	project := load(t)
	for name, target := range map[string]string{"postgres": "/var/lib/postgresql/data", "kafka": "/var/lib/kafka/data"} {
		require.True(t, slices.ContainsFunc(project.Services[name].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeVolume && v.Target == target && v.Source != ""
		}), name)
	}
	require.Equal(t, "kafkasql", *project.Services["registry"].Environment["APICURIO_STORAGE_KIND"],
		"a registry in memory forgets the ids that stand in every message")
}
