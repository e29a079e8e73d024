package credentials

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// most is the maximum size of a secret in bytes.
const most = 64 << 10

// ErrNoPath reports that a value has several lines, so that it may be the text of a file, such as a private key, and not its path.
var ErrNoPath = errors.New("several lines (not shown): want the path of a file, not its text")

// IsPath reports whether text can be the path of a file.
func IsPath(text string) bool { return !strings.ContainsAny(text, "\r\n") }

// ReadFile returns the text of a file without its last line breaks. An empty file is an error. No error contains any part of
// the text.
func ReadFile(path string) (string, error) {
	if !IsPath(path) {
		return "", ErrNoPath
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > most:
		return "", fmt.Errorf("%s: more than %d bytes: this is no secret", path, most)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}
