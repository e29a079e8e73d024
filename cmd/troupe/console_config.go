package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/internal/console"
)

// A consoleFile is the file of --config. Flags and the environment take precedence over it.
type consoleFile struct {
	Databases map[string]secret `yaml:"databases"`
	Brokers   string            `yaml:"brokers"`
	Flow      string            `yaml:"flow"`
	Registry  secret            `yaml:"registry"`
	Listen    string            `yaml:"listen"`
	Hosts     []string          `yaml:"hosts"`
	HTTPS     bool              `yaml:"https"`
	Token     secret            `yaml:"token"`
	// Users, Groups and Proxy are of console.Access.
	Users  map[string]consoleUser   `yaml:"users"`
	Groups map[string]console.Roles `yaml:"groups"`
	Proxy  *consoleProxy            `yaml:"proxy"`
}

type consoleUser struct {
	Token secret        `yaml:"token"`
	Roles console.Roles `yaml:"roles"`
}

type consoleProxy struct {
	From   []string `yaml:"from"`
	Secret secret   `yaml:"secret"`
	User   string   `yaml:"user"`
	Groups string   `yaml:"groups"`
}

// access returns the users of the file; nil: it has none.
func (c consoleFile) access() (*console.Access, error) {
	if c.Users == nil && c.Groups == nil && c.Proxy == nil {
		return nil, nil
	}
	a := &console.Access{Groups: c.Groups}
	for _, name := range slices.Sorted(maps.Keys(c.Users)) {
		token, err := c.Users[name].Token.read()
		if err != nil {
			return nil, fmt.Errorf("--config: user %s: token: %w", name, err)
		}
		a.Users = append(a.Users, console.User{Name: name, Token: token, Roles: c.Users[name].Roles})
	}
	if p := c.Proxy; p != nil {
		secret, err := p.Secret.read()
		if err != nil {
			return nil, fmt.Errorf("--config: proxy: secret: %w", err)
		}
		a.Proxy = &console.Proxy{Secret: secret, User: p.User, Groups: p.Groups}
		for _, text := range p.From {
			from, err := prefix(text)
			if err != nil {
				return nil, fmt.Errorf("--config: proxy: from: %q: want an address such as 10.1.2.3, or a network such as 10.1.0.0/16", text)
			}
			a.Proxy.From = append(a.Proxy.From, from)
		}
	}
	return a, nil
}

// prefix returns a network, or the network of one address.
func prefix(text string) (netip.Prefix, error) {
	if at, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(at, at.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// A secret is in the file itself, in another file that it names, or in the environment.
type secret struct{ text, file, env string }

const mostConsoleFile = 1 << 20

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *secret) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		s.text = node.Value
		return nil
	}
	var from map[string]string
	if err := node.Decode(&from); err != nil || len(from) != 1 || from["file"] == "" && from["env"] == "" {
		return fmt.Errorf("line %d: want text, {file: PATH} or {env: NAME}", node.Line)
	}
	s.file, s.env = from["file"], from["env"]
	return nil
}

// read returns the text; "" if the secret is not set at all. No error contains any of it.
func (s secret) read() (string, error) {
	text := s.text
	switch {
	case s.env != "":
		if text = os.Getenv(s.env); text == "" {
			return "", fmt.Errorf("%s is not set", s.env)
		}
	case s.file != "":
		read, err := os.ReadFile(s.file)
		if err != nil {
			return "", err
		}
		if text = strings.TrimSpace(string(read)); text == "" {
			return "", fmt.Errorf("%s is empty", s.file)
		}
	}
	return text, nil
}

// readConsoleFile refuses unknown keys. It hides the parser's errors, which may quote values, which may be secrets.
func readConsoleFile(path string) (c consoleFile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	if len(text) > mostConsoleFile {
		return c, fmt.Errorf("--config: %s has more than %d bytes", path, mostConsoleFile)
	}
	var keys map[string]yaml.Node
	if yaml.Unmarshal(text, &keys) != nil {
		return c, fmt.Errorf("--config: %s is no YAML of settings (its text is not shown: it may contain a secret)", path)
	}
	known := []string{"brokers", "databases", "flow", "groups", "hosts", "https", "listen", "proxy", "registry", "token", "users"}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(known, key) {
			return c, fmt.Errorf("--config: %s: unknown key %q; known are %s", path, key, strings.Join(known, ", "))
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true) // an unknown key of a user or of the proxy could be a protection that is not there
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		var mismatch *yaml.TypeError
		if errors.As(err, &mismatch) {
			err = errors.New("a value has the wrong type, or a key of a user or of the proxy is unknown (they are not shown: one may be a secret)")
		}
		return c, fmt.Errorf("--config: %s: %w", path, err)
	}
	return c, nil
}

// take sets the settings that neither flags nor the environment set.
func (f *consoleFlags) take(c consoleFile, listens bool) (token string, err error) {
	if len(f.databases) == 0 && os.Getenv("TROUPE_DATABASES") == "" {
		for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
			url, err := c.Databases[name].read()
			if err != nil {
				return "", fmt.Errorf("--config: database %s: %w", name, err)
			}
			f.databases = append(f.databases, name+"="+url)
			if path := c.Databases[name].file; path != "" {
				if f.files == nil {
					f.files = make(map[string]string)
				}
				f.files[name] = path
			}
		}
	}
	registry, err := c.Registry.read()
	if err != nil {
		return "", fmt.Errorf("--config: registry: %w", err)
	}
	f.cfg.Flow = cmp.Or(f.cfg.Flow, os.Getenv("TROUPE_FLOW"), c.Flow)
	if f.cfg.Flow != "" {
		f.brokers = cmp.Or(f.brokers, os.Getenv("KAFKA_BROKERS"))
	}
	f.brokers = cmp.Or(f.brokers, c.Brokers)
	f.registry = cmp.Or(f.registry, os.Getenv("SCHEMA_REGISTRY_URL"), registry)
	if !listens {
		f.listen = cmp.Or(c.Listen, f.listen)
	}
	if len(f.hosts) == 0 {
		f.hosts = c.Hosts
	}
	f.https = f.https || c.HTTPS
	if f.access, err = c.access(); err != nil {
		return "", err
	}
	if token, err = c.Token.read(); err != nil {
		return "", fmt.Errorf("--config: token: %w", err)
	}
	return token, nil
}
