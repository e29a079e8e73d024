package credentials

import (
	"errors"
	"strings"
)

// words splits a command line at blanks, as a shell does, and expands nothing: $, *, ~ and ; are ordinary characters. Between
// single quotes every character is ordinary. Elsewhere a backslash makes the next character ordinary. No error contains any
// part of the text.
func words(text string) (all []string, err error) {
	var word strings.Builder
	var quote rune // 0: none
	begun, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if begun {
				all = append(all, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	switch {
	case escaped:
		return nil, errors.New("the command ends with a backslash")
	case quote != 0:
		return nil, errors.New("the command has a quote that is not closed")
	}
	if begun {
		all = append(all, word.String())
	}
	if len(all) == 0 || all[0] == "" {
		return nil, errors.New("the command is empty")
	}
	return all, nil
}
