package credentials

import (
	"errors"
	"strings"
)

// words splits a command line as a shell does, by blanks and with quotes, and expands nothing: $, *, ~ and ; are plain characters.
// Between single quotes every character is plain; elsewhere a backslash makes the next character plain. No error contains the text.
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
		return nil, errors.New("the command has a quote that does not end")
	}
	if begun {
		all = append(all, word.String())
	}
	if len(all) == 0 || all[0] == "" {
		return nil, errors.New("there is no command")
	}
	return all, nil
}
