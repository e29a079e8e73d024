// Package manifests extracts the configuration of our programs from the Kubernetes manifests in docker/kubernetes, so that the
// tests of the programs can check it. docker/kubernetestest checks that Kubernetes accepts the manifests.
//
// The package is for tests.
package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Container is a program in a pod.
type Container struct {
	File     string
	Workload string
	Program  string // the image's name: outbox-relay, demo-payment
	Args     []string
	Env      map[string]string
	Ports    map[string]int // by name
	Probes   []Probe
	Grace    time.Duration     // of the whole pod; 30 s if it sets none
	Files    map[string]string // of config maps, by their paths in the container
}

// A Probe is an HTTP probe of a container.
type Probe struct{ Path, Port string }

type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct{ Template struct{ Spec podSpec } }
}

type podSpec struct {
	Grace          *int        `yaml:"terminationGracePeriodSeconds"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Image string
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Startup   *probe `yaml:"startupProbe"`
	Liveness  *probe `yaml:"livenessProbe"`
	Readiness *probe `yaml:"readinessProbe"`
	Mounts    []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// Read returns the containers of all files in a folder.
func Read(folder string) (found []Container, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		objects, err := read(path)
		if err != nil {
			return nil, err
		}
		data := make(map[string]map[string]string) // by config map
		for _, o := range objects {
			if o.Kind == "ConfigMap" {
				data[o.Metadata.Name] = o.Data
			}
		}
		for _, o := range objects {
			pod := o.Spec.Template.Spec
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				one := c.read(pod, data)
				one.File, one.Workload = filepath.Base(path), o.Metadata.Name
				found = append(found, one)
			}
		}
	}
	return found, nil
}

func read(path string) (objects []object, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		}
		objects = append(objects, o)
	}
}

func (c container) read(pod podSpec, data map[string]map[string]string) Container {
	one := Container{Args: c.Args, Env: make(map[string]string), Ports: make(map[string]int), Files: make(map[string]string), Grace: 30 * time.Second}
	one.Program, _, _ = strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	for _, e := range c.Env {
		one.Env[e.Name] = e.Value
	}
	for _, p := range c.Ports {
		one.Ports[p.Name] = p.Port
	}
	for _, p := range []*probe{c.Startup, c.Liveness, c.Readiness} {
		if p != nil {
			one.Probes = append(one.Probes, Probe(p.Get))
		}
	}
	if pod.Grace != nil {
		one.Grace = time.Duration(*pod.Grace) * time.Second
	}
	for _, mount := range c.Mounts {
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			for name, text := range data[volume.ConfigMap.Name] {
				one.Files[mount.Path+"/"+name] = text
			}
		}
	}
	return one
}
