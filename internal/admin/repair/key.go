package repair

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/pgtext"
)

// A Key is the key of a message, or the value of a header. As text it is unchanged if it is printable, else "0x" and hex. A text that would
// be read as hex is hex, too: no two keys have the same text, so an action on one key never affects another one. As JSON it is this text, or null
// for none.
type Key []byte

// String returns the key as text.
func (k Key) String() string {
	text := string(k)
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if _, isHex := fromHex(text); !isHex && utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return text
	}
	return "0x" + hex.EncodeToString(k)
}

// Subject returns the text by which troupe trace and the page Messages find the key: the key itself if it is text.
func (k Key) Subject() string {
	if pgtext.Fits([]byte(k)) {
		return string(k)
	}
	return k.String()
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

// ParseKey parses the format of String.
func ParseKey(text string) Key {
	if b, is := fromHex(text); is {
		return b
	}
	return Key(text)
}

// fromHex returns the bytes of a text of "0x" and hex.
func fromHex(text string) ([]byte, bool) {
	digits, is := strings.CutPrefix(text, "0x")
	b, err := hex.DecodeString(digits)
	return b, is && err == nil
}
