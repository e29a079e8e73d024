package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThereIsNoPhraseToAvoid(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	files, err := sources(root)
	require.NoError(t, err)
	found, err := findPhrases(files)
	require.NoError(t, err)
	for _, p := range found {
		t.Error(p)
	}
}

func TestPhrasesAreFound(t *testing.T) {
	for text, kinds := range map[string][]string{
		"package x\n\n// owner is what leads.\nfunc owner() {}":                {"opens 'X is what'"},
		"package x\n\n// owner returns the leader's name.\nfunc owner() {}":    nil,
		"package x\n\n// a sends what is left.\nfunc a() {}":                   {"what without a noun"},
		"package x\n\nvar e = \"the row stands in the table\"":                 {"stands"},
		"package x\n\n// a wakes nobody, whoever it was.\nfunc a() {}":         {"who without a noun", "some, any, nobody"},
		"package x\n\n// a reports, when it is told, those of b.\nfunc a() {}": {"said, told, heard", "literary"},
	} {
		found, err := findPhrases([]source{{Path: "x/x.go", Folder: "x", Text: text}})
		require.NoError(t, err)
		var got []string
		for _, p := range found {
			got = append(got, p.Kind)
		}
		require.Equal(t, kinds, got, text)
	}
	found, err := findPhrases([]source{{Path: "x/x_test.go", Folder: "x", Text: "package x\nfunc TestRetries_A23(t *T) {}\nfunc TestDefect7Wakes(t *T) {}\nfunc TestRetriesWait(t *T) {}"}})
	require.NoError(t, err)
	require.Len(t, found, 2)
	found, err = findPhrases([]source{{Path: "x.md", Folder: ".", Text: "What is sent.\n```\nwhat is sent\n```\n"}})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestPlainEnglishIsNoPhrase(t *testing.T) {
	for text, kinds := range map[string][]string{
		"What is a hop?": nil,
		"## 2. What is not in `troupe.outbox` is lost?":  nil,
		"What was at troupe.outbox when it began?":       nil,
		"What is a hop? The relay sends what is left.":   {"what without a noun"},
		"The relay sends what is left. Is it published?": {"what without a noun"},
		"## What it means":                               nil,
		"**What it costs.** One more statement.":         nil,
		"The error names what is wrong.":                 nil,
		"It deletes what it publishes.":                  {"what without a noun"},
		"Ask the operator, who confirms, first.":         nil,
		"Who retries, and how often?":                    nil,
		"Customers to whom nothing can be delivered.":    nil,
		"Who asked first goes first.":                    {"who without a noun"},
		"The role that runs it (default: who connects).": {"who without a noun"},
		"It slows the writers, who have two cores.":      {"who without a noun"},
		"A member who was frozen stops.":                 {"who without a noun"},
		"`{id}` stands for a variable.":                  nil,
		"The other relays stand by.":                     nil,
		"The row stands in the table.":                   {"stands"},
		"The shard that is asked for is released.":       nil,
		"The process was asked to stop.":                 nil,
		"The cost cannot be told from noise.":            nil,
		"Every customer was told once.":                  nil,
		"The relay was told once.":                       {"said, told, heard"},
		"The relay was asked.":                           {"said, told, heard"},
		"The lock ensures that of two sagas one waits.":  nil,
		"The key is that of the saga.":                   {"literary"},
		"The log says `the row stands in the table`.":    nil,
	} {
		found, err := findPhrases([]source{{Path: "x.md", Folder: ".", Text: text}})
		require.NoError(t, err)
		var got []string
		for _, p := range found {
			got = append(got, p.Kind)
		}
		require.Equal(t, kinds, got, text)
	}
	found, err := findPhrases([]source{{Path: "x/x_test.go", Folder: "x", Text: "package x\nfunc TestWholeBatchesAreSent(t *T) {}\nfunc TestWhatIsSent(t *T) {}"}})
	require.NoError(t, err)
	require.Len(t, found, 1)
}
