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

// ErrNoPath is the error for a text that is rather the text of a file than its path, such as a private key.
var ErrNoPath = errors.New("several lines (not shown): want the path of a file, not its text")

// IsPath reports whether text can be the path of a file.
func IsPath(text string) bool { return !strings.ContainsAny(text, "\r\n") }

// ReadFile returns a file's text without its last line break. An empty file is an error. No error contains any of the text.
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
