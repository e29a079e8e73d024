package repair

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Key is a message's key or a header's value. As text it is itself where it can be printed, else hex behind "0x";
// as JSON that text, or null for none.
type Key []byte

// String is the key as text.
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

// UnmarshalJSON reads what MarshalJSON wrote.
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

// ParseKey reads what String wrote. A key that itself begins with 0x cannot be told from hex and is read as hex where
// it is.
func ParseKey(text string) Key {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		if b, err := hex.DecodeString(digits); err == nil {
			return b
		}
	}
	return Key(text)
}
