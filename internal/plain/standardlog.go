package plain

import (
	"bytes"
	"io"
	"log" //nolint:depguard // Go's own packages write to it
)

// StandardLog makes Go's standard logger write to w, and cuts each line at its first quote. Package net/http logs and quotes a
// response that a server sends without a request. The response may contain a payload, or repeat a password.
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
