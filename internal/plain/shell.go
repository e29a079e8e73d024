package plain

import "strings"

// maxArgument is the number of characters of a text that Argument keeps.
const maxArgument = 1000

// Argument returns text as one argument of a POSIX shell, without control characters, for a command that a person copies into a
// terminal. The key of a message may be "o-1; reboot".
func Argument(text string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	text = Line(text, maxArgument) // before the quotes, so that it does not cut one
	if text != "" && strings.Trim(text, safe) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Operand is Argument for an argument of a command that is no flag and no value of one. If text begins with a hyphen, "--" comes first, so that
// it is no flag either, such as the address of another database.
func Operand(text string) string {
	if strings.HasPrefix(text, "-") {
		return "-- " + Argument(text)
	}
	return Argument(text)
}
