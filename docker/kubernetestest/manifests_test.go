// Package kubernetestest parses docker/kubernetes strictly, with Kubernetes' own types, and checks rules that the types do not have.
// internal/sidecar and internal/demo check the settings of our programs in the manifests. It is a separate module, so that the module that
// users import does not require Kubernetes' libraries.
package kubernetestest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const namespace = "shop"

// A workload makes pods.
type workload struct {
	file, name string
	replicas   int32
	selector   *metav1.LabelSelector // nil of a job
	pod        corev1.PodTemplateSpec
}

func (w workload) String() string { return w.file + " " + w.name }

// manifests has the objects of the folder.
type manifests struct {
	workloads  []workload
	budgets    []policyv1.PodDisruptionBudget
	policies   []networkingv1.NetworkPolicy
	configMaps map[string]corev1.ConfigMap
}

func load(t *testing.T) (m manifests) {
	t.Helper()
	m.configMaps = make(map[string]corev1.ConfigMap)
	files, err := filepath.Glob("../kubernetes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			require.NoError(t, m.read(filepath.Base(path), part), path)
		}
	}
	return m
}

// read adds one object. A field that its kind does not have, or that is there twice, is an error.
func (m *manifests) read(file string, text []byte) error {
	var is struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := yaml.Unmarshal(text, &is); err != nil {
		return err
	}
	if is.Kind != "Namespace" && is.Namespace != namespace {
		return fmt.Errorf("%s %s: in the namespace %q", is.Kind, is.Name, is.Namespace)
	}
	switch is.APIVersion + " " + is.Kind {
	case "v1 Namespace":
		return yaml.UnmarshalStrict(text, new(corev1.Namespace))
	case "v1 ConfigMap":
		var o corev1.ConfigMap
		err := yaml.UnmarshalStrict(text, &o)
		m.configMaps[o.Name] = o
		return err
	case "apps/v1 Deployment":
		var o appsv1.Deployment
		err := yaml.UnmarshalStrict(text, &o)
		m.workloads = append(m.workloads, workload{file, o.Name, *o.Spec.Replicas, o.Spec.Selector, o.Spec.Template})
		return err
	case "batch/v1 Job":
		var o batchv1.Job
		err := yaml.UnmarshalStrict(text, &o)
		m.workloads = append(m.workloads, workload{file: file, name: o.Name, pod: o.Spec.Template})
		return err
	case "policy/v1 PodDisruptionBudget":
		var o policyv1.PodDisruptionBudget
		err := yaml.UnmarshalStrict(text, &o)
		m.budgets = append(m.budgets, o)
		return err
	case "networking.k8s.io/v1 NetworkPolicy":
		var o networkingv1.NetworkPolicy
		err := yaml.UnmarshalStrict(text, &o)
		m.policies = append(m.policies, o)
		return err
	}
	return fmt.Errorf("%s %s: a kind that this test does not know", is.APIVersion, is.Kind)
}

func (w workload) containers() []corev1.Container {
	return append(slices.Clone(w.pod.Spec.InitContainers), w.pod.Spec.Containers...)
}

// chosen reports whether a selector selects the pods of a workload.
func chosen(t *testing.T, selector *metav1.LabelSelector, w workload) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return !s.Empty() && s.Matches(labels.Set(w.pod.Labels))
}

func TestEachFieldExistsInKubernetes(t *testing.T) {
	m := load(t)
	require.Len(t, m.workloads, 3)
	require.Len(t, m.budgets, 2)
	require.Len(t, m.policies, 2)
	var one manifests
	require.ErrorContains(t, one.read("x", []byte("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x, namespace: shop}\nspec: {maxUnavailabel: 1}\n")),
		"maxUnavailabel")
}

func TestEachDeploymentHasAStandbyAndOneDisruptionBudget(t *testing.T) {
	m := load(t)
	for _, w := range m.workloads {
		if w.selector == nil {
			continue
		}
		require.GreaterOrEqual(t, w.replicas, int32(2), "%s has no standby", w)
		for _, other := range m.workloads {
			require.Equal(t, w.name == other.name, chosen(t, w.selector, other), "%s and the pods of %s", w, other)
		}
		budgets := 0
		for _, b := range m.budgets {
			if chosen(t, b.Spec.Selector, w) {
				budgets++
				require.Equal(t, 1, b.Spec.MaxUnavailable.IntValue(), "%s: a node could not be drained, or lose all", w)
			}
		}
		require.Equal(t, 1, budgets, w)
		for _, spread := range w.pod.Spec.TopologySpreadConstraints {
			require.True(t, chosen(t, spread.LabelSelector, w), w)
		}
		require.NotEmpty(t, w.pod.Spec.TopologySpreadConstraints, w)
	}
}

func TestPodsRunWithoutRootAndCannotWrite(t *testing.T) {
	for _, w := range load(t).workloads {
		require.False(t, *w.pod.Spec.AutomountServiceAccountToken, "%s: none of our programs speaks to Kubernetes", w)
		pod := w.pod.Spec.SecurityContext
		require.True(t, *pod.RunAsNonRoot, w)
		require.NotZero(t, *pod.RunAsUser, w)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SeccompProfile.Type, w)
		for _, c := range w.containers() {
			s := c.SecurityContext
			require.NotNil(t, s, "%s %s", w, c.Name)
			require.True(t, *s.ReadOnlyRootFilesystem, "%s %s", w, c.Name)
			require.False(t, *s.AllowPrivilegeEscalation, "%s %s", w, c.Name)
			require.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop, "%s %s", w, c.Name)
			for _, mount := range c.VolumeMounts {
				require.True(t, mount.ReadOnly, "%s %s %s", w, c.Name, mount.Name)
			}
		}
	}
}

func TestSecretsAreFilesAndEveryVolumeExists(t *testing.T) {
	m := load(t)
	page, err := os.ReadFile("../../docs/kubernetes.md")
	require.NoError(t, err)
	for _, w := range m.workloads {
		volumes := make(map[string]corev1.Volume)
		for _, v := range w.pod.Spec.Volumes {
			volumes[v.Name] = v
			switch {
			case v.Secret != nil:
				require.Contains(t, string(page), "create secret generic "+v.Secret.SecretName+" ", "docs/kubernetes.md does not say how it is made")
				require.Equal(t, int32(0o440), *v.Secret.DefaultMode, "%s %s", w, v.Name)
			case v.ConfigMap != nil && v.ConfigMap.Name == "trust":
				require.Contains(t, string(page), "create configmap trust ")
			case v.ConfigMap != nil:
				require.Contains(t, m.configMaps, v.ConfigMap.Name, w)
			default:
				t.Errorf("%s %s: neither a secret nor a config map", w, v.Name)
			}
		}
		for _, c := range w.containers() {
			var mounted []string
			for _, mount := range c.VolumeMounts {
				require.Contains(t, volumes, mount.Name, "%s %s", w, c.Name)
				mounted = append(mounted, mount.MountPath+"/")
			}
			for _, e := range c.Env {
				require.Nil(t, e.ValueFrom, "%s %s %s: others on the node can read it", w, c.Name, e.Name)
				if strings.HasPrefix(e.Value, "/") {
					require.True(t, slices.ContainsFunc(mounted, func(path string) bool { return strings.HasPrefix(e.Value, path) }),
						"%s %s %s: nothing is mounted at %s", w, c.Name, e.Name, e.Value)
				}
			}
		}
	}
}

func TestMemoryIsBoundedBelowTheLimitAndImagesAreOurs(t *testing.T) {
	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	for _, w := range load(t).workloads {
		for _, c := range w.containers() {
			name, tag, ok := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
			require.True(t, ok && tag != "latest", c.Image)
			require.Contains(t, string(dockerfile), " AS "+name+"\n", c.Image)
			require.Contains(t, c.Resources.Requests, corev1.ResourceCPU, "%s %s", w, c.Name)
			require.Contains(t, c.Resources.Requests, corev1.ResourceMemory, "%s %s", w, c.Name)
			require.NotContains(t, c.Resources.Limits, corev1.ResourceCPU, "%s %s: a throttled process loses its lease", w, c.Name)
			limit := c.Resources.Limits.Memory().Value()
			require.Positive(t, limit, "%s %s", w, c.Name)
			for _, e := range c.Env {
				var mib int64
				if e.Name == "GOMEMLIMIT" {
					_, err := fmt.Sscanf(e.Value, "%dMiB", &mib)
					require.NoError(t, err)
					require.Less(t, mib<<20, limit, "%s %s", w, c.Name)
					require.Greater(t, mib<<20, limit*3/4, "%s %s", w, c.Name)
				}
			}
		}
	}
}

// TestEachPodHasOnePolicyForItsPorts checks that each pod has one policy, and that each policy opens the ports of its pods only.
func TestEachPodHasOnePolicyForItsPorts(t *testing.T) {
	m := load(t)
	policies := make(map[string]int) // of each workload
	for _, policy := range m.policies {
		var open, used []int
		for _, rule := range policy.Spec.Ingress {
			require.NotEmpty(t, rule.From, "the policy lets every peer in")
			for _, p := range rule.Ports {
				open = append(open, p.Port.IntValue())
			}
		}
		for _, rule := range policy.Spec.Egress {
			require.NotEmpty(t, rule.To)
			require.NotEmpty(t, rule.Ports)
		}
		require.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
		for _, w := range m.workloads {
			if !chosen(t, &policy.Spec.PodSelector, w) {
				continue
			}
			policies[w.name]++
			for _, c := range w.containers() {
				for _, p := range c.Ports {
					used = append(used, int(p.ContainerPort))
				}
			}
		}
		slices.Sort(used)
		slices.Sort(open)
		require.Equal(t, slices.Compact(used), open, policy.Name)
	}
	for _, w := range m.workloads {
		require.Equal(t, 1, policies[w.name], w)
	}
}
