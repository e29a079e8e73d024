package demo

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// start runs a program in an environment of its own, and returns the configuration that its service got.
func start(t *testing.T, environment map[string]string, result error, args ...string) (code int, said string, got *Config) {
	t.Helper()
	for _, s := range new(Config).settings() {
		t.Setenv(s.env, environment[s.env])
	}
	var output bytes.Buffer
	code = program{
		name: "payment", args: args, stdout: &output, stderr: &output,
		run: func(_ context.Context, cfg Config) error {
			got = &cfg
			return result
		},
	}.main(t.Context())
	return code, output.String(), got
}

var enough = map[string]string{
	"DATABASE_URL": "postgres://localhost/payment", "KAFKA_BROKERS": "a:9092,b:9092", "SCHEMA_REGISTRY_URL": "http://localhost:8081",
}

func TestDatabaseBrokersAndRegistryAreEnough(t *testing.T) {
	code, _, cfg := start(t, enough, nil)
	require.Equal(t, 0, code)
	require.Equal(t, "postgres://localhost/payment", cfg.DatabaseURL)
	require.Equal(t, []string{"a:9092", "b:9092"}, cfg.Brokers)
	require.Equal(t, "http://localhost:8081", cfg.Registry)
	require.Equal(t, Orchestration, cfg.Style)
	require.Equal(t, "order", cfg.Flow)
	require.Equal(t, "127.0.0.1:8082", cfg.Listen)
	require.Equal(t, int32(4), cfg.Partitions)
	require.Equal(t, "order.inventory", cfg.Hop("inventory").String())
	require.Equal(t, "order.inventory", Config{}.Hop("inventory").String())
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	environment := map[string]string{
		"DATABASE_URL": "postgres://localhost/one", "KAFKA_BROKERS": "a:9092", "SCHEMA_REGISTRY_URL": "http://one",
		"DEMO_STYLE": "orchestration", "DEMO_FLOW": "one", "DEMO_LISTEN": "127.0.0.1:1", "DEMO_FAIL": "payment=1%", "DEMO_SEED": "1", "DEMO_PARTITIONS": "1",
		"ALERT_URL": "https://one/hook",
	}
	code, _, cfg := start(t, environment, nil)
	require.Equal(t, 0, code)
	one := Config{
		DatabaseURL: "postgres://localhost/one", Brokers: []string{"a:9092"}, Registry: "http://one",
		Style: Orchestration, Flow: "one", Listen: "127.0.0.1:1", Fail: Fail{"payment": 0.01}, Seed: 1, Partitions: 1, AlertURL: "https://one/hook", Log: cfg.Log,
	}
	require.Equal(t, one, *cfg)

	code, _, cfg = start(t, environment, nil, "--database-url", "postgres://localhost/two", "--brokers=b:9092",
		"--registry", "http://two", "--style", "choreography", "--flow", "two", "--listen", ":2", "--fail", "shipping=2%", "--seed", "2", "--partitions", "2",
		"--alert-url", "https://two/hook")
	require.Equal(t, 0, code)
	two := Config{
		DatabaseURL: "postgres://localhost/two", Brokers: []string{"b:9092"}, Registry: "http://two",
		Style: Choreography, Flow: "two", Listen: ":2", Fail: Fail{"shipping": 0.02}, Seed: 2, Partitions: 2, AlertURL: "https://two/hook", Log: cfg.Log,
	}
	require.Equal(t, two, *cfg)
}

func TestMisuseNamesTheSettingBeforeAnythingStarts(t *testing.T) {
	with := func(key, value string) map[string]string {
		environment := map[string]string{}
		for k, v := range enough {
			environment[k] = v
		}
		environment[key] = value
		return environment
	}
	for name, misuse := range map[string]struct {
		environment map[string]string
		args        []string
		said        string
	}{
		"no database":        {with("DATABASE_URL", ""), nil, "DATABASE_URL is not set: want postgres://"},
		"no database URL":    {with("DATABASE_URL", "payment:5432"), nil, "DATABASE_URL: "},
		"a port alone":       {with("DEMO_LISTEN", "8080"), nil, "DEMO_LISTEN: "},
		"no brokers":         {with("KAFKA_BROKERS", " "), nil, "KAFKA_BROKERS is not set: want host:port"},
		"no registry":        {with("SCHEMA_REGISTRY_URL", ""), nil, "SCHEMA_REGISTRY_URL is not set"},
		"a flow with a dot":  {with("DEMO_FLOW", "a.b"), nil, "DEMO_FLOW: flow \"a.b\""},
		"no style":           {with("DEMO_STYLE", "anarchy"), nil, `DEMO_STYLE: "anarchy": want orchestration or choreography`},
		"no percents":        {with("DEMO_FAIL", "payment=2"), nil, "DEMO_FAIL: "},
		"no number":          {with("DEMO_SEED", "x"), nil, `DEMO_SEED: "x": want a whole number`},
		"too many":           {with("DEMO_PARTITIONS", "99999999999"), nil, "DEMO_PARTITIONS"},
		"negative":           {with("DEMO_PARTITIONS", "-1"), nil, "DEMO_PARTITIONS: -1: want 1 or more"},
		"no webhook":         {with("ALERT_URL", "chat.example/hook"), nil, "ALERT_URL: alert: the URL is none like https://"},
		"an unknown flag":    {enough, []string{"--flwo", "x"}, "-flwo"},
		"a bad flag":         {enough, []string{"--fail", "x"}, "-fail"},
		"an unknown command": {enough, []string{"run"}, `unknown argument "run"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, said, cfg := start(t, misuse.environment, nil, misuse.args...)
			require.Equal(t, 2, code)
			require.Contains(t, said, misuse.said)
			require.Nil(t, cfg, "the service was not started")
		})
	}
}

func TestAFailureExitsWithOne(t *testing.T) {
	code, said, _ := start(t, enough, errors.New("the roof is on fire"))
	require.Equal(t, 1, code)
	require.Contains(t, said, "demo-payment: the roof is on fire")
}

func TestHelpNamesEverySetting(t *testing.T) {
	code, said, _ := start(t, nil, nil, "--help")
	require.Equal(t, 0, code)
	for _, s := range new(Config).settings() {
		require.Contains(t, said, s.env)
		require.Contains(t, said, "-"+s.flag())
	}
	require.Contains(t, said, "demo-payment --database-url postgres://")
}

func TestHealthcheckAsksReadyz(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/readyz", r.URL.Path)
		http.Error(w, "the group was lost", status)
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	code, _, cfg := start(t, nil, nil, "healthcheck", "--listen", address)
	require.Equal(t, 0, code, "it needs neither database nor brokers")
	require.Nil(t, cfg)
	code, _, _ = start(t, nil, nil, "healthcheck", "--listen", ":"+server.URL[strings.LastIndex(server.URL, ":")+1:])
	require.Equal(t, 0, code, "an address of all interfaces is checked on this machine")

	status = http.StatusServiceUnavailable
	code, said, _ := start(t, nil, nil, "healthcheck", "--listen", address)
	require.Equal(t, 1, code)
	require.Contains(t, said, "the group was lost")

	server.Close()
	code, _, _ = start(t, nil, nil, "healthcheck", "--listen", address)
	require.Equal(t, 1, code)
}
