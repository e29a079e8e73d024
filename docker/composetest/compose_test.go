// Package composetest loads docker-compose.yml as docker compose does, and holds it to the rules that nothing else
// checks. It is a module of its own, so that the library behind it burdens nobody else.
package composetest

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var services = []string{"order", "payment", "inventory", "shipping"}

func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithName("troupe"), cli.WithProfiles([]string{"observability"}))
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

func TestOnlyWhatLooksOnNeedsItsProfile(t *testing.T) {
	for name, s := range load(t).Services {
		looksOn := slices.Contains([]string{"prometheus", "grafana", "otel-collector", "jaeger"}, name)
		require.Equal(t, looksOn, slices.Equal(s.Profiles, []string{"observability"}), name)
		for on := range s.DependsOn {
			require.False(t, !looksOn && slices.Contains([]string{"prometheus", "grafana", "otel-collector", "jaeger"}, on), name)
		}
		if looksOn {
			require.Equal(t, []string{"ALL"}, s.CapDrop, name)
			require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		}
	}
}

// What Prometheus reads is each service and each relay, where they listen, with the token that the relays want.
func TestPrometheusReadsEveryProcess(t *testing.T) {
	project := load(t)
	text, err := os.ReadFile("../observability/prometheus.yml")
	require.NoError(t, err)
	var config struct {
		Files   []string `yaml:"rule_files"`
		Scrapes []struct {
			Job           string `yaml:"job_name"`
			Authorization struct {
				File string `yaml:"credentials_file"`
			}
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	require.Equal(t, []string{"alerts.yml"}, config.Files)
	var read []string
	for _, job := range config.Scrapes {
		for _, target := range job.Targets[0].Targets {
			host, port, err := net.SplitHostPort(target)
			require.NoError(t, err)
			if host == "127.0.0.1" {
				continue // itself
			}
			read = append(read, host)
			listens := "DEMO_LISTEN"
			if job.Job == "relays" {
				listens = "OUTBOX_RELAY_ADMIN"
				require.Equal(t, "admin-token", job.Authorization.File)
				require.Equal(t, project.Configs["admin-token"].Content, *project.Services[host].Environment["OUTBOX_RELAY_ADMIN_TOKEN"])
				require.GreaterOrEqual(t, len(project.Configs["admin-token"].Content), 16)
			}
			require.Equal(t, ":"+port, *project.Services[host].Environment[listens], target)
		}
	}
	var want []string
	for _, name := range services {
		want = append(want, name, name+"-relay")
	}
	require.ElementsMatch(t, want, read)
}

// Files that containers read are there.
func TestWhatIsMountedIsThere(t *testing.T) {
	for name, s := range load(t).Services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				_, err := os.Stat(v.Source)
				require.NoError(t, err, name)
				require.True(t, v.ReadOnly, "%s may write to %s", name, v.Source)
			}
		}
	}
}

// Spans go where the collector listens, and from there to where Jaeger does.
func TestSpansHaveAWay(t *testing.T) {
	project := load(t)
	for _, name := range services {
		require.Equal(t, "http://otel-collector:4318", *project.Services[name].Environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
	}
	text, err := os.ReadFile("../observability/otel-collector.yml")
	require.NoError(t, err)
	var config struct {
		Receivers map[string]struct {
			Protocols map[string]struct{ Endpoint string }
		}
		Exporters map[string]struct{ Endpoint string }
		Service   struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
		Processors map[string]any
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	require.Equal(t, "0.0.0.0:4318", config.Receivers["otlp"].Protocols["http"].Endpoint)
	require.Equal(t, "jaeger:4317", config.Exporters["otlp/jaeger"].Endpoint)
	for _, p := range config.Service.Pipelines["traces"].Processors {
		require.Contains(t, config.Processors, p)
	}
	require.Equal(t, []string{"otlp"}, config.Service.Pipelines["traces"].Receivers)
	require.Equal(t, []string{"otlp/jaeger"}, config.Service.Pipelines["traces"].Exporters)
}
