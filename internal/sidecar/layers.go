package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/internal/credentials"
)

// values are settings, each with its source, so that an error can name the source to correct.
type values struct {
	outbox  string // the outbox's name; empty: settings of the process
	program string
	text    map[string]string
	from    map[string]string
	path    map[string]string              // files that secrets were read from
	command map[string]credentials.Command // commands that print secrets

	mapping map[string]string // of the outbox, as its entry has it
}

// A layer is one source of settings: flags, environment, file or defaults.
type layer struct {
	get  func(name string) (text string, set bool) // name is the setting's name in the file
	from func(name string) string                  // for errors
}

// settingsOf holds all layers, read once.
type settingsOf struct {
	program  string
	known    []setting // all settings of the program
	environ  map[string]string
	cmd      *cobra.Command
	path     string // of the file; empty: none
	top      map[string]any
	outboxes []entry
}

// An entry is one of the file's outboxes.
type entry struct {
	name    string
	values  map[string]any
	mapping map[string]string // of a table that is not troupe.outbox; nil: none
}

const (
	outboxesKey = "outboxes"
	nameKey     = "name"
	mappingKey  = "mapping"
	mostEntries = 1000
)

// load reads the relay's file with its outboxes, and the environment. Its errors are of usage.
func (p Program) load(cmd *cobra.Command) (*settingsOf, error) {
	l, err := p.loadFile(cmd, relayProgram, everything)
	if err != nil {
		return nil, err
	}
	list, given := l.top[outboxesKey]
	delete(l.top, outboxesKey)
	if err := l.refuseUnknown("", l.top, everything); err != nil {
		return nil, err
	}
	if !given {
		return l, nil
	}
	return l, l.readEntries(list)
}

// loadFile reads the file of a program, and the environment. It does not validate the settings.
func (p Program) loadFile(cmd *cobra.Command, program string, known []setting) (*settingsOf, error) {
	l := &settingsOf{program: program, known: known, environ: make(map[string]string), cmd: cmd}
	for _, line := range p.Environ {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" {
			l.environ[name] = value
		}
	}
	l.path = l.environ[configVar(program)]
	if cmd.Flags().Changed(configFlag) {
		l.path, _ = cmd.Flags().GetString(configFlag)
	}
	if l.path == "" {
		return l, nil
	}
	written, err := os.ReadFile(l.path)
	if err != nil {
		return nil, usagef("config %s: %w", l.path, errors.Unwrap(err))
	}
	if err := yaml.Unmarshal(written, &l.top); err != nil {
		return nil, usagef("config %s: %w", l.path, withoutValues(err))
	}
	return l, nil
}

var lineNumber = regexp.MustCompile(`line [0-9]+`)

// withoutValues returns a parser's error without the text that it quotes, which may be a secret: only the line remains. A key
// that is a list or a map is printed as Go does, in braces.
func withoutValues(err error) error {
	if !strings.ContainsAny(err.Error(), "`'\"{") {
		return err
	}
	where := cmp.Or(lineNumber.FindString(err.Error()), "some line")
	return errors.New(where + ": cannot be read as settings (the text is not shown, since it may be a secret)")
}

var entryName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (l *settingsOf) readEntries(given any) error {
	list, ok := given.([]any)
	if !ok || len(list) == 0 || len(list) > mostEntries {
		return usagef("config %s: %s: want a list of 1 to %d outboxes, each with a name", l.path, outboxesKey, mostEntries)
	}
	for n, one := range list {
		settings, ok := one.(map[string]any)
		if !ok {
			return usagef("config %s: %s: number %d is no set of settings", l.path, outboxesKey, n+1)
		}
		name, _ := settings[nameKey].(string)
		if !entryName.MatchString(name) || strings.Contains(name, "--") {
			return usagef("config %s: %s: number %d: name %q: want 1 to 63 lower-case letters, digits and single dashes between them",
				l.path, outboxesKey, n+1, name)
		}
		if slices.ContainsFunc(l.outboxes, func(e entry) bool { return e.name == name }) {
			return usagef("config %s: %s: two are named %q", l.path, outboxesKey, name)
		}
		one := entry{name: name, values: maps.Clone(settings)}
		if given, mapped := settings[mappingKey]; mapped {
			var err error
			if one.mapping, err = readMapping(given); err != nil {
				return usagef("config %s: outbox %s: %s: %w", l.path, name, mappingKey, err)
			}
		}
		settings = one.values
		delete(settings, nameKey)
		delete(settings, mappingKey)
		if err := l.refuseUnknown("outbox "+name+": ", settings, eachSettings); err != nil {
			return err
		}
		l.outboxes = append(l.outboxes, one)
	}
	return nil
}

func (l *settingsOf) refuseUnknown(where string, given map[string]any, settings []setting) error {
	known := make(map[string]setting)
	for _, s := range settings {
		known[s.name] = s
		if s.secret {
			known[s.fileName()] = setting{}
		}
		if s.printed {
			known[s.commandName()] = setting{}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		s, ok := known[key]
		if !ok {
			return usagef("config %s: %sunknown key %q; known are %s", l.path, where, key,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		switch value := given[key].(type) {
		case map[string]any:
			return usagef("config %s: %s%s: want a value, not settings below it", l.path, where, key)
		case string, nil:
		default:
			if s.secret { // YAML reads 0123 as another number, and an error may not show a secret
				return usagef("config %s: %s%s: want text in quotes", l.path, where, key)
			}
			if _, many := value.([]any); many && s.kind != list {
				return usagef("config %s: %s%s: want one value, not a list", l.path, where, key)
			}
		}
	}
	return nil
}

// process returns the settings of the process, or of the outbox if the file names none.
func (l *settingsOf) process(settings ...setting) (values, error) {
	return l.resolve("", []layer{l.flags(), l.variables(), l.file(l.top, l.path), l.defaults()}, settings)
}

// of returns the settings of one of the file's outboxes: a value that is set for one outbox overrides a value for all.
func (l *settingsOf) of(e entry, settings ...setting) (values, error) {
	where := l.path + ", outbox " + e.name
	v, err := l.resolve(e.name, []layer{
		l.variablesOf(e.name), l.file(e.values, where), l.flags(), l.variables(), l.file(l.top, l.path), l.defaults(),
	}, settings)
	v.mapping = e.mapping
	return v, err
}

// one returns the settings of the outbox that a command works on.
func (l *settingsOf) one(settings ...setting) (values, error) {
	chosen, _ := l.cmd.Flags().GetString(outboxFlag)
	names := make([]string, len(l.outboxes))
	for n, e := range l.outboxes {
		names[n] = e.name
		if e.name == chosen || chosen == "" && len(l.outboxes) == 1 {
			return l.of(e, settings...)
		}
	}
	switch {
	case chosen != "":
		return values{}, usagef("--%s %q: the file's are: %s", outboxFlag, chosen, strings.Join(names, ", "))
	case len(names) > 0:
		return values{}, usagef("config %s has several outboxes: say which with --%s: %s",
			l.path, outboxFlag, strings.Join(names, ", "))
	}
	return l.process(settings...)
}

// read calls load, then one.
func (p Program) read(cmd *cobra.Command, settings ...setting) (values, error) {
	l, err := p.load(cmd)
	if err != nil {
		return values{}, err
	}
	return l.one(settings...)
}

// resolve takes each setting from the first layer that has it.
func (l *settingsOf) resolve(outbox string, layers []layer, settings []setting) (values, error) {
	v := values{
		outbox: outbox, program: l.program,
		text: make(map[string]string), from: make(map[string]string), path: make(map[string]string),
		command: make(map[string]credentials.Command),
	}
	for _, s := range settings {
		for _, layer := range layers {
			found, err := v.take(s, layer)
			if err != nil {
				return v, err
			}
			if found {
				break
			}
		}
	}
	return v, nil
}

// take takes a setting from a layer, and reports whether the layer has it.
func (v values) take(s setting, from layer) (found bool, err error) {
	if s.secret {
		return v.takeSecret(s, from)
	}
	text, set := from.get(s.name)
	if !set {
		return false, nil
	}
	if s.kind == path && !credentials.IsPath(text) {
		return true, usagef("%s (from %s): %w", s.name, from.from(s.name), credentials.ErrNoPath)
	}
	v.text[s.name], v.from[s.name] = text, from.from(s.name)
	return true, nil
}

func (l *settingsOf) flags() layer {
	return layer{
		get: func(name string) (string, bool) {
			flag := l.cmd.Flags().Lookup(name)
			if flag == nil || !flag.Changed {
				return "", false
			}
			return flag.Value.String(), true
		},
		from: func(name string) string { return "--" + name },
	}
}

// variables ignores variables that begin with the program's prefix but name no setting: Kubernetes makes some for a service of
// that name.
func (l *settingsOf) variables() layer { return l.environment(l.variableNames(setting.variable)) }

func (l *settingsOf) variablesOf(outbox string) layer {
	return l.environment(l.variableNames(func(s setting) string { return s.variableOf(outbox) }))
}

func (l *settingsOf) environment(names map[string]string) layer {
	return layer{
		get: func(name string) (string, bool) {
			value, set := l.environ[names[name]]
			return value, set
		},
		from: func(name string) string { return names[name] },
	}
}

func (l *settingsOf) variableNames(of func(setting) string) map[string]string {
	names := make(map[string]string)
	for _, s := range l.known {
		names[s.name] = of(s)
		if s.secret {
			names[s.fileName()] = of(s) + "_FILE"
		}
		if s.printed {
			names[s.commandName()] = of(s) + "_COMMAND"
		}
	}
	return names
}

func (l *settingsOf) file(given map[string]any, where string) layer {
	return layer{
		get: func(name string) (string, bool) {
			value, set := given[name]
			if !set || value == nil {
				return "", false
			}
			return textOf(value), true
		},
		from: func(string) string { return where },
	}
}

func (l *settingsOf) defaults() layer {
	return layer{
		get: func(name string) (string, bool) {
			for _, s := range l.known {
				if s.name == name {
					return s.value, true
				}
			}
			return "", false
		},
		from: func(string) string { return "default" },
	}
}

// textOf returns a value of the file in the form of a flag: the elements of a list are joined by commas.
func textOf(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	parts := make([]string, len(list))
	for i, part := range list {
		parts[i] = fmt.Sprint(part)
	}
	return strings.Join(parts, ",")
}
