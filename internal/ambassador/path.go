package ambassador

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	maxPath = 2048
	// maxDecodings bounds how often a path may have been escaped.
	maxDecodings = 4
)

// checkPath returns an error for a path that could lead out of the base on any server that handles it: some decode before
// they remove dot segments, some decode twice, some treat a backslash as a slash, some cut a segment at a semicolon.
func checkPath(path string) error {
	switch {
	case len(path) > maxPath:
		return fmt.Errorf("path of %d bytes: want at most %d", len(path), maxPath)
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("path %q: want one that begins with a slash, without a host", path)
	}
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`?#\"<>`, c) >= 0 {
			return fmt.Errorf("path %q: character %q must be escaped", path, c)
		}
	}
	if strings.Contains(path, "//") {
		return fmt.Errorf("path %q: two slashes in a row", path)
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("path %q: %w", path, err)
	}
	if sent := (&url.URL{Path: decoded, RawPath: path}).EscapedPath(); sent != path { // net/url ignores RawPath then, and sends %2F as a slash
		return fmt.Errorf("path %q: a character must be escaped, as in %q", path, sent)
	}
	text := path
	for range maxDecodings {
		if err := checkSegments(text); err != nil {
			return fmt.Errorf("path %q: %w", path, err)
		}
		decoded := unescape(text)
		if decoded == text {
			return nil
		}
		text = decoded
	}
	return fmt.Errorf("path %q: it is escaped more than %d times", path, maxDecodings-1)
}

// unescape decodes escapes and keeps invalid ones unchanged, as lenient servers do.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func checkSegments(path string) error {
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("it has a control character")
	}
	for _, s := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if name, _, _ := strings.Cut(s, ";"); name == "." || name == ".." {
			return fmt.Errorf("segment %q would lead elsewhere", s)
		}
	}
	return nil
}
