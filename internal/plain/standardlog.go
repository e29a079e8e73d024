package plain

import (
	"bytes"
	"io"
	"log" //nolint:depguard // the packages of Go use it
)

// StandardLog makes the standard logger write to w, without the text that a line quotes. Package net/http quotes the response that a
// server sends without a request, which may have a payload or repeat a password.
func StandardLog(w io.Writer) { log.SetOutput(unquoted{w}) }

type unquoted struct{ to io.Writer }

func (u unquoted) Write(line []byte) (int, error) {
	text := line
	if before, _, quotes := bytes.Cut(line, []byte{'"'}); quotes {
		text = append(bytes.Clone(before), "…\n"...)
	}
	if _, err := u.to.Write(text); err != nil {
		return 0, err
	}
	return len(line), nil
}
