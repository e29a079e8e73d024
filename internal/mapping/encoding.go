package mapping

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/pgtext"
)

// Recode converts the text of a row, as a database of another encoding stores it, to UTF-8, in place. convert returns false for text
// that has no form in UTF-8: that value stays as it is and gets its Encoding, so that a row whose message needs it cannot be mapped.
func (t *Table) Recode(row []Value, encoding string, convert func(text []byte) (utf8 []byte, ok bool, err error)) error {
	for n := range row {
		v, r := &row[n], &t.readers[n]
		if v.Data == nil {
			continue
		}
		text, tag := v.Data, 0
		switch r.kind {
		case kindText:
		case kindJSONB:
			if v.Binary {
				tag = min(1, len(text)) // jsonb begins with a version byte
			}
		case kindOther:
			var err error
			if text, err = r.other(*v); err != nil { // no option reads this type, or the mapping reports the error later
				continue
			}
		default:
			continue
		}
		if pgtext.IsASCII(text[tag:]) {
			continue
		}
		converted, ok, err := convert(text[tag:])
		switch {
		case err != nil:
			return err
		case !ok:
			v.Encoding = encoding
		case tag > 0:
			v.Data = append([]byte{text[0]}, converted...)
		default:
			v.Data, v.Binary = converted, v.Binary && r.kind == kindText
		}
	}
	return nil
}

// readable returns an error for a value that Recode could not convert, or that Without has left out.
func (v Value) readable() error {
	switch {
	case v.Missing > 0:
		return fmt.Errorf("has %d bytes, which are not kept with a row that could not be published: discard this one, then insert the row again", v.Missing)
	case v.Encoding == "":
		return nil
	}
	return fmt.Errorf("is not text in the encoding %s that can be converted to UTF-8", v.Encoding)
}
