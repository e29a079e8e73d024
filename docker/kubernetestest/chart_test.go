package kubernetestest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "render docker/kubernetes/relay.yaml from the chart")

const (
	chartFolder   = "../helm/outbox-relay"
	relayValues   = "../helm/relay.values.yaml"
	relayManifest = "../kubernetes/relay.yaml"
)

const relayHead = `# A separate relay, for services that have no relay in their pods: two pods for two databases. For each database one pod publishes, and
# the other is the standby, which takes over within the time of the lease (5 s).
#
# Rendered from docker/helm/outbox-relay with docker/helm/relay.values.yaml. Change these two, and then run in docker/kubernetestest:
#
#   go test -run TestTheRelaysManifest . -update
`

// render returns the objects that Helm renders from the chart with these values, for the release relay in the manifests' namespace.
func render(values map[string]any) (objects []string, err error) {
	chart, err := loader.Load(chartFolder)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: "relay", Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(chart, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	// The order in which Helm installs them.
	for _, name := range []string{"networkpolicy", "poddisruptionbudget", "configmap", "servicemonitor", "deployment"} {
		file := path.Join(chart.Name(), "templates", name+".yaml")
		for part := range strings.SplitSeq(files[file], "\n---\n") {
			if part = strings.TrimSpace(part); part != "" {
				objects = append(objects, part+"\n")
			}
		}
		delete(files, file)
	}
	for name, text := range files {
		if path.Base(name) != "NOTES.txt" && path.Base(name) != "_names.tpl" {
			return nil, fmt.Errorf("this test does not know the template %s: %s", name, text)
		}
	}
	return objects, nil
}

func valuesOf(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(relayValues)
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	return values
}

func TestTheRelaysManifestIsRenderedFromTheChart(t *testing.T) {
	objects, err := render(valuesOf(t))
	require.NoError(t, err)
	text := relayHead + strings.Join(objects, "---\n")
	if *update {
		require.NoError(t, os.WriteFile(relayManifest, []byte(text), 0o600))
	}
	manifest, err := os.ReadFile(relayManifest)
	require.NoError(t, err)
	require.Equal(t, text, string(manifest), "run this test with -update")
}

func TestHelmLintFindsNothingInTheChart(t *testing.T) {
	for _, m := range lint.RunAll(chartFolder, valuesOf(t), namespace).Messages {
		require.Contains(t, m.Error(), "icon is recommended")
	}
}

// TestEveryValueHasADefaultAndIsChecked compares values.yaml, which describes the values, with values.schema.json.
func TestEveryValueHasADefaultAndIsChecked(t *testing.T) {
	text, err := os.ReadFile(chartFolder + "/values.yaml")
	require.NoError(t, err)
	var defaults map[string]any
	require.NoError(t, yaml.UnmarshalStrict(text, &defaults))
	schema, err := os.ReadFile(chartFolder + "/values.schema.json")
	require.NoError(t, err)
	var object struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	require.NoError(t, json.Unmarshal(schema, &object))
	page, err := os.ReadFile("../../docs/kubernetes.md")
	require.NoError(t, err)
	for name, property := range object.Properties {
		if name == "global" { // of Helm
			continue
		}
		require.Contains(t, defaults, name)
		require.Contains(t, string(page), "`"+name, "docs/kubernetes.md does not describe it")
		for inner := range property.Properties {
			if name != "config" { // the relay's own file
				require.Contains(t, defaults[name], inner, name)
			}
		}
	}
	for name := range defaults {
		require.Contains(t, object.Properties, name)
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	_, err := render(map[string]any{})
	require.ErrorContains(t, err, "missing property 'outboxes'", "the defaults have no database")
	for want, change := range map[string]func(values, config map[string]any){
		"additional properties 'replica' not allowed":     func(v, _ map[string]any) { v["replica"] = 3 },
		"additional properties 'kafka-usr' not allowed":   func(_, c map[string]any) { c["kafka-usr"] = "relay" },
		"at '/replicas': minimum: got 0, want 1":          func(v, _ map[string]any) { v["replicas"] = 0 },
		"at '/config/kafka-password': false schema":       func(_, c map[string]any) { c["kafka-password"] = "hunter2" },
		"at '/config/outboxes/0/database-url': 'not'":     func(_, c map[string]any) { outbox(c)["database-url"] = "postgres://relay:hunter2@db/order" },
		"at '/config/outboxes/0/database-password': fals": func(_, c map[string]any) { outbox(c)["database-password"] = "hunter2" },
		"at '/config/batch': maximum: got 20,000":         func(_, c map[string]any) { c["batch"] = 20000 },
		"at '/config/admin'":                              func(_, c map[string]any) { c["admin"] = "8089" },
		"at '/image/digest'":                              func(v, _ map[string]any) { v["image"].(map[string]any)["digest"] = "latest" },
		"must be a file of one of the secrets": func(v, c map[string]any) {
			c["admin-token-file"] = "/run/secrets/admin/token"
			v["serviceMonitor"] = map[string]any{"enabled": true}
		},
	} {
		values := valuesOf(t)
		change(values, values["config"].(map[string]any))
		_, err := render(values)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func outbox(config map[string]any) map[string]any {
	return config["outboxes"].([]any)[0].(map[string]any)
}

// TestTheChartWithEveryOption sets each value that the example leaves out, and checks its effect on the objects.
func TestTheChartWithEveryOption(t *testing.T) {
	values := valuesOf(t)
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, value := range map[string]any{
		"image":              map[string]any{"repository": "registry.example/outbox-relay", "digest": digest, "pullPolicy": "Always"},
		"imagePullSecrets":   []any{"pull"},
		"replicas":           3,
		"env":                map[string]any{"AWS_REGION": "eu-central-1"},
		"secrets":            map[string]any{"relay": "relay", "order": "order-database"},
		"resources":          map[string]any{"memoryLimitMiB": 256},
		"podLabels":          map[string]any{"team": "shop"},
		"podAnnotations":     map[string]any{"example.com/a": "b"},
		"serviceAccountName": "relay",
		"priorityClassName":  "high",
		"nodeSelector":       map[string]any{"disk": "ssd"},
		"tolerations":        []any{map[string]any{"key": "k", "operator": "Exists"}},
		"affinity":           map[string]any{"nodeAffinity": map[string]any{}},
		"spreadAcrossNodes":  "ScheduleAnyway",
		"serviceMonitor":     map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
	} {
		values[name] = value
	}
	objects, err := render(values)
	require.NoError(t, err)
	kinds := make(map[string]string)
	for _, text := range objects {
		var is struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(text), &is))
		kinds[is.Kind] = text
	}
	require.Len(t, kinds, 6)

	var d appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict([]byte(kinds["Deployment"]), &d))
	pod := d.Spec.Template.Spec
	require.Equal(t, int32(3), *d.Spec.Replicas)
	require.Equal(t, "registry.example/outbox-relay@"+digest, pod.Containers[0].Image)
	require.Equal(t, []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "219MiB"}, {Name: "AWS_REGION", Value: "eu-central-1"}}, pod.Containers[0].Env)
	require.Equal(t, "256Mi", pod.Containers[0].Resources.Limits.Memory().String())
	require.Equal(t, "200m", pod.Containers[0].Resources.Requests.Cpu().String(), "the default remains")
	require.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets)
	require.Equal(t, "relay", pod.ServiceAccountName)
	require.Equal(t, "high", pod.PriorityClassName)
	require.Equal(t, "shop", d.Spec.Template.Labels["team"])
	require.Equal(t, "b", d.Spec.Template.Annotations["example.com/a"])
	require.NotEmpty(t, pod.NodeSelector)
	require.NotEmpty(t, pod.Tolerations)
	require.NotNil(t, pod.Affinity)
	require.Equal(t, corev1.ScheduleAnyway, pod.TopologySpreadConstraints[0].WhenUnsatisfiable)
	require.True(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == "order-database"
	}))

	var s corev1.Service
	require.NoError(t, yaml.UnmarshalStrict([]byte(kinds["Service"]), &s))
	require.Equal(t, d.Spec.Selector.MatchLabels, s.Spec.Selector)
	require.Equal(t, pod.Containers[0].Ports[0].Name, s.Spec.Ports[0].TargetPort.StrVal)
	monitor := kinds["ServiceMonitor"]
	require.Contains(t, monitor, "credentials: {name: relay, key: admin-token}")
	require.Contains(t, monitor, "    release: prometheus\n")
}

// TestAChangedSettingRestartsThePods compares the pods of two releases that differ in one setting only.
func TestAChangedSettingRestartsThePods(t *testing.T) {
	deployment := func(batch int) string {
		values := valuesOf(t)
		values["config"].(map[string]any)["batch"] = batch
		objects, err := render(values)
		require.NoError(t, err)
		n := slices.IndexFunc(objects, func(o string) bool { return bytes.Contains([]byte(o), []byte("kind: Deployment")) })
		return objects[n]
	}
	require.Equal(t, deployment(100), deployment(100))
	require.NotEqual(t, deployment(100), deployment(200))
}
