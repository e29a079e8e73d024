package repair

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Key is the key of a message, or the value of a header. As text it is unchanged if it is printable, else "0x" and hex. As JSON
// it is this text, or null for none.
type Key []byte

// String returns the key as text.
func (k Key) String() string {
	if utf8.Valid(k) && strings.IndexFunc(string(k), func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return string(k)
	}
	return "0x" + hex.EncodeToString(k)
}

// MarshalJSON writes the text, or null.
func (k Key) MarshalJSON() ([]byte, error) {
	if k == nil {
		return []byte("null"), nil
	}
	return json.Marshal(k.String())
}

// UnmarshalJSON reads the format of MarshalJSON.
func (k *Key) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	*k = nil
	if text != nil {
		*k = ParseKey(*text)
	}
	return nil
}

// ParseKey parses the format of String. A key that itself begins with 0x and continues with valid hex is read as hex.
func ParseKey(text string) Key {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		if b, err := hex.DecodeString(digits); err == nil {
			return b
		}
	}
	return Key(text)
}
