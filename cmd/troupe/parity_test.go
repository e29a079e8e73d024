package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sidecar"
)

// byPageAndCommand are the console's actions, each with the command that does the same.
var byPageAndCommand = map[string]string{
	"/saga/act retry": "troupe saga retry", "/saga/act skip": "troupe saga skip", "/saga/act resolve": "troupe saga resolve",
	"/saga/act compensate": "troupe saga compensate", "/saga/act resume": "troupe saga resume", "/saga/act abandon": "troupe saga abandon",
	"/dead-letter edit": "troupe dlq edit", "/dead-letter redrive": "troupe dlq redrive", "/dead-letter discard": "troupe dlq discard",
	"/dead-letters/act redrive": "troupe dlq redrive", "/dead-letters/act discard": "troupe dlq discard",
	"/held/key retry": "troupe held retry", "/held/key release": "troupe held release",
	"/relay/row retry": "outbox-relay parked retry", "/relay/row discard": "outbox-relay parked discard",
	"/relay/act retry": "outbox-relay parked retry", "/relay/act discard": "outbox-relay parked discard",
	"/definition/move migrate": "troupe saga migrate", "/definition/start start": "troupe saga start",
	"/relay/act pause": "outbox-relay pause", "/relay/act resume": "outbox-relay resume",
}

// byPageAlone and byCommandAlone say why there is no other way.
var (
	byPageAlone = map[string]string{
		"/work stop": "a command's redrive ends with Ctrl-C; that of a page goes on behind it",
	}
	byCommandAlone = map[string]string{
		"troupe init":            "writes files where the developer sits",
		"troupe schema register": "belongs to a release: the files are in its repository, not in a database",
		"outbox-relay migrate":   "changes the schema, with a role that a console must not have",
	}
)

// reading are the commands that change nothing that lasts, or that are a program of their own.
var reading = []string{
	"troupe ambassador", "troupe completion", "troupe console", "troupe demo", "troupe dev", "troupe dlq list", "troupe dlq show", "troupe doctor",
	"troupe flow asyncapi", "troupe flow diff", "troupe flow graph", "troupe flow schema", "troupe flow verify", "troupe held list",
	"troupe inbox find", "troupe saga diff", "troupe saga explore", "troupe saga fixture", "troupe saga fmt", "troupe saga list", "troupe saga locks", "troupe saga replay", "troupe saga schema",
	"troupe saga show", "troupe saga verify", "troupe schema check", "troupe schema diff", "troupe trace", "troupe version",
	"troupe watch findings", "troupe watch list", "troupe watch show",
	"outbox-relay check", "outbox-relay healthcheck", "outbox-relay parked list", "outbox-relay parked show", "outbox-relay run",
	"outbox-relay schema", "outbox-relay status",
}

// consoleActions are those that the document of the console's addresses has.
func consoleActions(t *testing.T) (all []string) {
	text, err := os.ReadFile("../../console/static/openapi.json")
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

// What can be done by page can be done by command, and the reverse. A new action or command fails this until somebody has
// said what its counterpart is, or why it has none.
func TestWhatAPageCanDoACommandCanAndTheReverse(t *testing.T) {
	t.Parallel()
	actions := consoleActions(t)
	for _, action := range actions {
		_, both := byPageAndCommand[action]
		_, alone := byPageAlone[action]
		require.True(t, both != alone, "%s: say which command does the same, or why none does", action)
	}
	commands := make(map[string]bool) // those that change something
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

func keysOf(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
