package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sidecar"
)

// byPageAndCommand lists the console's actions, each with the command that does the same.
var byPageAndCommand = map[string]string{
	"/saga/act retry": "troupe saga retry", "/saga/act skip": "troupe saga skip", "/saga/act resolve": "troupe saga resolve",
	"/saga/act compensate": "troupe saga compensate", "/saga/act resume": "troupe saga resume", "/saga/act abandon": "troupe saga abandon",
	"/saga/act set": "troupe saga set", "/saga/answer answer": "troupe saga answer", "/saga/answer preview": "troupe saga answer", "/saga/act cancel": "troupe saga cancel", "/sagas/retry retry": "troupe saga retry",
	"/dead-letter edit": "troupe dlq edit", "/dead-letter redrive": "troupe dlq redrive", "/dead-letter discard": "troupe dlq discard",
	"/dead-letters/act redrive": "troupe dlq redrive", "/dead-letters/act discard": "troupe dlq discard",
	"/held/key retry": "troupe held retry", "/held/key dead-letter": "troupe held dead-letter",
	"/relay/row retry": "outbox-relay parked retry", "/relay/row discard": "outbox-relay parked discard",
	"/relay/act retry": "outbox-relay parked retry", "/relay/act discard": "outbox-relay parked discard",
	"/definition/move migrate": "troupe saga migrate", "/definition/start start": "troupe saga start",
	"/relay/act pause": "outbox-relay pause", "/relay/act resume": "outbox-relay resume",
}

// byPageAlone and byCommandAlone list actions without a counterpart, each with the reason.
var (
	byPageAlone = map[string]string{
		"/work stop": "what a page has begun goes on in the memory of its console; a command's ends with Ctrl-C",
	}
	byCommandAlone = map[string]string{
		"troupe init":            "writes files where the developer sits",
		"troupe schema register": "belongs to a release: the files are in its repository, not in a database",
		"troupe batch skip":      "is for an incident that is rare, and its runbook has the command",
		"outbox-relay migrate":   "changes the schema, with a role that a console must not have",
		"troupe schedule set":    "the console only shows schedules",
		"troupe schedule pause":  "the console only shows schedules",
		"troupe schedule resume": "the console only shows schedules",
		"troupe schedule run":    "the console only shows schedules",
		"troupe schedule delete": "the console only shows schedules",
		"troupe rebuild start":   "the console only shows rebuilds",
		"troupe rebuild cancel":  "the console only shows rebuilds",
		"troupe erase":           "changes the audit log, with a role that a console must not have",
		"outbox-relay retain":    "deletes from the audit log, with a role that a console must not have",
	}
)

// reading lists the commands that change nothing that lasts, or that are a program of their own.
var reading = []string{
	"troupe actions", "troupe ambassador", "troupe batch list", "troupe completion", "troupe console", "troupe demo", "troupe dev", "troupe dlq list", "troupe dlq show", "troupe doctor",
	"troupe flow asyncapi", "troupe flow diff", "troupe flow graph", "troupe flow schema", "troupe flow verify", "troupe held list",
	"troupe inbox find", "troupe expectation list", "troupe saga diff", "troupe saga explore", "troupe saga fixture", "troupe saga list", "troupe saga locks", "troupe saga questions", "troupe saga replay", "troupe saga schema",
	"troupe saga show", "troupe saga verify", "troupe rebuild list", "troupe rebuild show", "troupe schedule list", "troupe schedule show", "troupe schema check", "troupe schema diff", "troupe trace", "troupe version",
	"troupe watch findings", "troupe watch list", "troupe watch show",
	"outbox-relay check", "outbox-relay healthcheck", "outbox-relay parked list", "outbox-relay parked show", "outbox-relay run",
	"outbox-relay grants", "outbox-relay schema", "outbox-relay status", "outbox-relay version",
}

// A view is a page, or its form, with the commands that have the same values.
type view struct {
	commands string            // comma-separated
	called   map[string]string // maps a value of the page to the flag's name; "": it is an argument
	page     map[string]string // values that only the page has, and flags that only a command has, each with the reason
	command  map[string]string
}

// where lists values for the place of the search and for the actor, which select nothing.
var where = []string{
	"db", "do", "table", "database", "database-url", "database-url-file", "database-password-file", "database-password-command", "database-tls-ca", "database-tls-cert",
	"database-tls-key", "database-tls-server-name", "registry", "output", "config", "outbox", "actor", "reason", "dry-run", "yes", "help",
}

const confirmed = "confirms an action on many, where a click is enough otherwise"

const previewed = "comes from the preview; a command that asks for a confirmation compares the state without it"

const oneOfAList = "is one line of a list, which has the filters"

// views lists the values that pages take, in the address or, after "post ", in the form.
var views = map[string]view{
	"/sagas": {
		commands: "troupe saga list", called: map[string]string{"still": "not-moved-since"},
		command: map[string]string{"counts": "the overview counts by status, and the definitions by definition"},
	},
	"/saga":         {commands: "troupe saga show", called: map[string]string{"id": ""}},
	"/saga/fixture": {commands: "troupe saga fixture", called: map[string]string{"id": ""}},
	"post /saga/act": {
		commands: "troupe saga retry, troupe saga skip, troupe saga resolve, troupe saga compensate, troupe saga cancel, troupe saga resume, troupe saga set, troupe saga abandon",
		called:   map[string]string{"id": "", "step": ""},
		page:     map[string]string{"state_hash": previewed},
		command:  map[string]string{"saga": "/sagas/retry retries all of a type", "rate": "/sagas/retry retries all of a type"},
	},
	"/questions": {commands: "troupe saga questions"},
	"post /saga/answer": {
		commands: "troupe saga answer", called: map[string]string{"id": "", "step": "", "event": "", "values": "field"},
		page: map[string]string{"state_hash": previewed},
	},
	"post /sagas/retry": {
		commands: "troupe saga retry", page: map[string]string{"count": confirmed},
	},
	"/flows": {commands: "troupe watch list"},
	"/flow":  {commands: "troupe watch show", called: map[string]string{"id": ""}},
	"/dead-letters": {
		commands: "troupe dlq list", command: map[string]string{"letters": "/dead-letters/list lists single ones"},
	},
	"/dead-letters/list": {
		commands: "troupe dlq list", command: map[string]string{"letters": "it lists no other"},
	},
	"post /dead-letters/act": {
		commands: "troupe dlq redrive, troupe dlq discard", page: map[string]string{"count": confirmed},
		command: map[string]string{"same-key": "post /dead-letter takes it, for a single message"},
	},
	"/dead-letter": {commands: "troupe dlq show", called: map[string]string{"id": ""}},
	"/held":        {commands: "troupe held list"},
	"/schedules":   {commands: "troupe schedule list"},
	"/rebuilds":    {commands: "troupe rebuild list"},
	"/actions":     {commands: "troupe actions"},
	"/expectations": {
		commands: "troupe expectation list", command: map[string]string{"counts": "the page has them, too"},
	},
	"post /held/key": {commands: "troupe held retry, troupe held dead-letter", called: map[string]string{"place": ""}},
	"/messages": {
		commands: "troupe trace, troupe inbox find", called: map[string]string{"q": ""},
		command: map[string]string{
			"brokers": "the console's", "flow": "the console's", "demo": "a demo has a console of its own",
			"topic": "a console is of one flow", "group": "a console is of one flow",
			"max-records": "a page has ten seconds", "timeout": "a page has ten seconds", "payload": "a page has them folded",
			"source": "a page shows the identity of each",
		},
	},
	"/relay/rows": {
		commands: "outbox-relay parked list",
		page:     map[string]string{"status": "parked list is of parked rows; outbox-relay status counts the others"},
	},
	"/relay/row": {commands: "outbox-relay parked show", called: map[string]string{"id": ""}},
	"post /relay/act": {
		commands: "outbox-relay parked retry, outbox-relay parked discard, outbox-relay pause, outbox-relay resume",
		page:     map[string]string{"count": confirmed},
		command:  map[string]string{"all": "the page asks for the number of rows instead"},
	},
	"post /definition/move": {commands: "troupe saga migrate"},
	"post /definition/start": {
		commands: "troupe saga start", called: map[string]string{"hash": "", "key": "", "input": "json"},
		command: map[string]string{"data": "the page has one field for all variables"},
	},
}

// seen lists pages without a view, each with the reason.
var seen = map[string]string{
	"/": "draws what several commands count", "/relay": "has no filter", "/definitions": "has no filter",
	"/definition": "is of a definition that is stored; troupe saga verify and diff take files",
	"/work":       "is of this console alone", "post /work": "is of this console alone",
	"/held/key": oneOfAList, "post /dead-letter": oneOfAList, "post /relay/row": oneOfAList,
	"/saga/act": "is the preview of its form", "/saga/answer": "is the form", "/sagas/retry": "is the preview of its form", "/dead-letters/act": "is the preview of its form", "/relay/act": "is the preview of its form",
	"/definition/move": "is the preview of its form", "/definition/start": "is the preview of its form",
}

// A page and a command take the same values, by name. A value that is added to either fails this test until the other has it,
// too, or the list of exceptions has it.
func TestPagesAndCommandsTakeTheSame(t *testing.T) {
	t.Parallel()
	flags := make(map[string][]string)
	for _, c := range append(shownCommands(newRoot()), shownCommands(sidecar.Program{}.Commands())...) {
		flags[c.CommandPath()] = []string{}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(where, f.Name) {
				flags[c.CommandPath()] = append(flags[c.CommandPath()], f.Name)
			}
		})
	}
	takes := consoleTakes(t)
	for page, values := range takes {
		_, why := seen[page]
		v, is := views[page]
		require.True(t, why != is, "%s: say which command takes the same, or why none does", page)
		if why {
			continue
		}
		has := make(map[string]bool) // of the commands
		for name := range strings.SplitSeq(v.commands, ", ") {
			require.Contains(t, flags, name, page)
			for _, flag := range flags[name] {
				has[flag] = true
			}
		}
		var as []string // the page's values as flags
		for _, value := range values {
			flag, other := v.called[value]
			if !other {
				flag = value
			}
			if as = append(as, flag); slices.Contains(where, value) || flag == "" || v.page[value] != "" {
				continue
			}
			require.True(t, has[flag], "%s takes %s: %s lacks --%s", page, value, v.commands, flag)
		}
		for flag := range has {
			require.True(t, slices.Contains(as, flag) != (v.command[flag] != ""), "%s has --%s: let %s take it, or say why not (and not both)", v.commands, flag, page)
		}
		for _, value := range slices.Concat(keysOf(v.called), keysOf(v.page)) {
			require.Contains(t, values, value, "%s does not take %s", page, value)
		}
		for flag := range v.command {
			require.True(t, has[flag], "%s: no command has --%s", page, flag)
		}
	}
	for _, page := range slices.Concat(keysOf(views), keysOf(seen)) {
		require.Contains(t, takes, page, "there is no such page")
	}
}

// consoleTakes returns the values that pages take in the address and, after "post ", in their forms.
func consoleTakes(t *testing.T) map[string][]string {
	text, err := os.ReadFile("../../internal/console/static/openapi.json")
	require.NoError(t, err)
	var document struct {
		Paths map[string]struct {
			Get  struct{ Parameters []struct{ Name string } }
			Post *struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct{ Properties map[string]any }
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &document))
	takes := make(map[string][]string)
	for path, of := range document.Paths {
		takes[path] = []string{}
		for _, p := range of.Get.Parameters {
			takes[path] = append(takes[path], p.Name)
		}
		if of.Post != nil {
			takes["post "+path] = keysOf(of.Post.RequestBody.Content["application/x-www-form-urlencoded"].Schema.Properties)
		}
	}
	return takes
}

// consoleActions returns the actions in the OpenAPI document of the console.
func consoleActions(t *testing.T) (all []string) {
	text, err := os.ReadFile("../../internal/console/static/openapi.json")
	require.NoError(t, err)
	var document struct {
		Paths map[string]struct {
			Post *struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct {
							Properties struct {
								Do struct{ Enum []string }
							}
						}
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &document))
	for path, of := range document.Paths {
		if of.Post == nil {
			continue
		}
		actions := of.Post.RequestBody.Content["application/x-www-form-urlencoded"].Schema.Properties.Do.Enum
		require.NotEmpty(t, actions, path)
		for _, do := range actions {
			all = append(all, path+" "+do)
		}
	}
	return all
}

// Every action of a page exists as a command, and the reverse. A new action or command fails this test until its counterpart is
// listed, or the reason why it has none.
func TestPagesAndCommandsHaveTheSameActions(t *testing.T) {
	t.Parallel()
	actions := consoleActions(t)
	for _, action := range actions {
		_, both := byPageAndCommand[action]
		_, alone := byPageAlone[action]
		require.True(t, both != alone, "%s: say which command does the same, or why none does", action)
	}
	commands := make(map[string]bool) // commands that change something
	for _, c := range append(shownCommands(newRoot()), shownCommands(sidecar.Program{}.Commands())...) {
		if c.HasSubCommands() {
			continue
		}
		name := c.CommandPath()
		commands[name] = !slices.Contains(reading, name)
		require.False(t, slices.Contains(reading, name) && c.Flags().Lookup("dry-run") != nil, "%s has --dry-run: it changes something", name)
	}
	counterparts := make(map[string]bool)
	for action, command := range byPageAndCommand {
		require.Contains(t, actions, action, "there is no such action")
		require.True(t, commands[command], "%s: %s is no command that changes something", action, command)
		counterparts[command] = true
	}
	for action := range byPageAlone {
		require.Contains(t, actions, action, "there is no such action")
	}
	for command, changes := range commands {
		_, alone := byCommandAlone[command]
		require.Equal(t, changes, counterparts[command] != alone && (counterparts[command] || alone),
			"%s: say which page does the same, why none does, or that it changes nothing", command)
	}
	for _, command := range slices.Concat(reading, keysOf(byCommandAlone)) {
		require.Contains(t, commands, command, "there is no such command")
	}
}

func keysOf[T any](m map[string]T) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
