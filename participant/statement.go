package participant

import "strings"

// effect is a set of effects that a statement has beyond the rows that it reads and writes.
type effect uint8

const (
	endsTransaction effect = 1 << iota // COMMIT, ROLLBACK without TO, BEGIN and the like
	sets                               // SET, SET LOCAL, RESET, set_config: later statements of the transaction see it
	setsSession                        // the same, and the session keeps it beyond the transaction
)

// effectsOf returns the effects of the text of one or more statements. The effects of functions that they call do not show in the text.
func effectsOf(sql string) (e effect) {
	first := true // the next word is a statement's first
	for i := 0; i < len(sql); {
		switch c := sql[i]; {
		case c == ';':
			first = true
			i++
		case isSpace(c):
			i++
		case isLetter(c):
			end := wordEnd(sql, i)
			word := sql[i:end]
			switch {
			case end < len(sql) && sql[end] == '\'' && strings.EqualFold(word, "e"):
				end = skipString(sql, end, true)
			case first:
				e |= effectsOfCommand(word, sql[end:])
			case strings.EqualFold(word, "set_config"):
				e |= effectsOfSetConfig(sql[end:])
			}
			first = false
			i = end
		default:
			next := skip(sql, i)
			if next == i {
				next, first = i+1, false
			} else if c == '"' || c == '\'' || c == '$' {
				first = false
			}
			i = next
		}
	}
	return e
}

// effectsOfCommand returns the effects of a statement that begins with word.
func effectsOfCommand(word, rest string) effect {
	switch strings.ToLower(word) {
	case "commit", "end", "abort", "begin", "start":
		return endsTransaction
	case "rollback":
		next, rest := nextWord(rest)
		if next == "work" || next == "transaction" {
			next, _ = nextWord(rest)
		}
		if next != "to" {
			return endsTransaction
		}
	case "prepare":
		if next, _ := nextWord(rest); next == "transaction" {
			return endsTransaction
		}
	case "set":
		switch next, _ := nextWord(rest); next {
		case "local", "transaction", "constraints":
			return sets
		}
		return sets | setsSession
	case "reset", "discard":
		return sets | setsSession
	}
	return 0
}

// effectsOfSetConfig returns the effects of a call of set_config. Its last argument is true if the setting is for the transaction only.
func effectsOfSetConfig(rest string) effect {
	depth, last := 0, 0
	for i := 0; i < len(rest); {
		switch rest[i] {
		case '(':
			if depth++; depth == 1 {
				last = i + 1
			}
		case ',':
			if depth == 1 {
				last = i + 1
			}
		case ')':
			if depth--; depth == 0 {
				if strings.Contains(strings.ToLower(rest[last:i]), "true") {
					return sets
				}
				return sets | setsSession
			}
		}
		i = max(skip(rest, i), i+1)
	}
	return sets | setsSession
}

func nextWord(sql string) (word, rest string) {
	i := 0
	for i < len(sql) {
		if isLetter(sql[i]) {
			end := wordEnd(sql, i)
			return strings.ToLower(sql[i:end]), sql[end:]
		}
		if next := skip(sql, i); next > i && sql[i] != '\'' && sql[i] != '"' && sql[i] != '$' {
			i = next
			continue
		}
		if !isSpace(sql[i]) {
			break
		}
		i++
	}
	return "", ""
}

// skip returns the end of the string, quoted name or comment that begins at i; i if none of them begins there.
func skip(sql string, i int) int {
	two := sql[i:min(i+2, len(sql))]
	switch {
	case sql[i] == '\'' || sql[i] == '"':
		return skipString(sql, i, false)
	case two == "--":
		return i + upTo(sql[i:], "\n")
	case two == "/*":
		depth := 0
		for ; i < len(sql); i++ {
			switch sql[i:min(i+2, len(sql))] {
			case "/*":
				depth++
				i++
			case "*/":
				depth--
				i++
			}
			if depth == 0 {
				return i + 1
			}
		}
		return len(sql)
	case sql[i] == '$':
		end := i + 1
		if end < len(sql) && isLetter(sql[end]) {
			for end < len(sql) && sql[end] != '$' && isWord(sql[end]) {
				end++
			}
		}
		if end < len(sql) && sql[end] == '$' {
			tag := sql[i : end+1]
			return end + 1 + upTo(sql[end+1:], tag)
		}
	}
	return i
}

// upTo returns the length of the part of s that ends with the first occurrence of what; the length of s if there is none.
func upTo(s, what string) int {
	if at := strings.Index(s, what); at >= 0 {
		return at + len(what)
	}
	return len(s)
}

func skipString(sql string, i int, backslashes bool) int {
	quote := sql[i]
	for i++; i < len(sql); i++ {
		switch {
		case sql[i] == '\\' && backslashes:
			i++
		case sql[i] == quote:
			if i+1 == len(sql) || sql[i+1] != quote {
				return i + 1
			}
			i++
		}
	}
	return len(sql)
}

func wordEnd(sql string, i int) int {
	for i < len(sql) && isWord(sql[i]) {
		i++
	}
	return i
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80 }
func isWord(c byte) bool   { return isLetter(c) || c >= '0' && c <= '9' || c == '$' }
func isSpace(c byte) bool  { return c == ' ' || c >= '\t' && c <= '\r' }
