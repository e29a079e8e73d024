package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// Avro's JSON encoding writes bytes as a text with a character for each byte, also of a decimal and of a UUID of 16 bytes. Values
// returns these two as a number and as the UUID's usual text; the functions below convert between the two.

// maxDigits limits the digits of a decimal that Values returns, as package saga limits a number.
const maxDigits = 1100

// isDecimal reports whether values of n are numbers.
func isDecimal(n *avro.SchemaNode) bool {
	return n.LogicalType == "decimal" && (n.Type == "bytes" || n.Type == "fixed")
}

// isUUID reports whether values of n are UUIDs of 16 bytes. A UUID in a string is its text anyway.
func isUUID(n *avro.SchemaNode) bool {
	return n.LogicalType == "uuid" && n.Type == "fixed" && n.Size == 16
}

// bytesOf returns the bytes that Avro's JSON encoding writes as text.
func bytesOf(text string) ([]byte, error) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return nil, errors.New("a character is no byte")
		}
		b = append(b, byte(r))
	}
	return b, nil
}

// escapedBytes returns the JSON of bytes. Each character is escaped: goavro takes others for their bytes in UTF-8.
func escapedBytes(text string) (json.RawMessage, error) {
	b, err := bytesOf(text)
	if err != nil {
		return nil, err
	}
	escaped := make([]byte, 0, 6*len(b)+2)
	escaped = append(escaped, '"')
	for _, c := range b {
		escaped = fmt.Appendf(escaped, `\u%04x`, c)
	}
	return append(escaped, '"'), nil
}

// textOf is the inverse of bytesOf.
func textOf(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

// numberOf returns a decimal's number, with all digits of its scale.
func numberOf(n *avro.SchemaNode, text string) (json.Number, error) {
	b, err := bytesOf(text)
	switch {
	case err != nil:
		return "", err
	case len(b) == 0:
		return "", errors.New("a decimal without bytes")
	case len(b) > maxDigits/2 || n.Scale > maxDigits:
		return "", fmt.Errorf("a decimal of more than %d digits", maxDigits)
	}
	unscaled := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	digits, negative := strings.CutPrefix(unscaled.String(), "-")
	if n.Scale > 0 {
		digits = strings.Repeat("0", max(0, n.Scale+1-len(digits))) + digits
		digits = digits[:len(digits)-n.Scale] + "." + digits[len(digits)-n.Scale:]
	}
	if negative {
		digits = "-" + digits
	}
	return json.Number(digits), nil
}

// decimalOf returns the text of the bytes of a number. It rounds nothing.
func decimalOf(n *avro.SchemaNode, number json.Number) (string, error) {
	if len(number) > 2*maxDigits || n.Scale > maxDigits { // big.Rat would read eight million digits for a minute
		return "", fmt.Errorf("no number of at most %d digits", maxDigits)
	}
	if _, exponent, found := strings.Cut(strings.ToLower(number.String()), "e"); found {
		if e, err := strconv.Atoi(exponent); err != nil || e > maxDigits || e < -maxDigits {
			return "", errors.New("a number with an exponent that is too large")
		}
	}
	value, ok := new(big.Rat).SetString(number.String())
	if !ok {
		return "", fmt.Errorf("no number of at most %d digits", maxDigits)
	}
	value.Mul(value, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n.Scale)), nil)))
	if !value.IsInt() {
		return "", fmt.Errorf("a number with more than %d digits behind the point: round it first", n.Scale)
	}
	unscaled := value.Num()
	if digits := len(new(big.Int).Abs(unscaled).String()); n.Precision > 0 && digits > n.Precision {
		return "", fmt.Errorf("a number of %d digits, of which it holds %d", digits, n.Precision)
	}
	size := len(unscaled.Bytes()) + 1 // with room for the sign
	if unscaled.Sign() < 0 {
		unscaled = new(big.Int).Add(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	b := unscaled.FillBytes(make([]byte, size))
	least := 1
	if n.Type == "fixed" {
		least = n.Size
	}
	for len(b) > least && (b[0] == 0 && b[1]&0x80 == 0 || b[0] == 0xff && b[1]&0x80 != 0) {
		b = b[1:]
	}
	if n.Type == "fixed" {
		if len(b) > n.Size {
			return "", fmt.Errorf("a number that does not fit %d bytes", n.Size)
		}
		sign := byte(0)
		if b[0]&0x80 != 0 {
			sign = 0xff
		}
		b = append(bytes.Repeat([]byte{sign}, n.Size-len(b)), b...)
	}
	return textOf(b), nil
}

// uuidOf returns the text of a UUID, and uuidBytes the text of its bytes.
func uuidOf(text string) (string, error) {
	b, err := bytesOf(text)
	if err != nil {
		return "", err
	}
	id, err := uuid.FromBytes(b)
	return id.String(), err
}

func uuidBytes(text string) string {
	if id, err := uuid.Parse(text); err == nil && len(text) == len(id.String()) {
		return textOf(id[:])
	}
	return text
}

// hasBytes reports whether a value, or a value inside it, may be bytes.
func (t tree) hasBytes() bool {
	var look func(n *avro.SchemaNode) bool
	look = func(n *avro.SchemaNode) bool {
		if n == nil {
			return false
		}
		if n.Type == "bytes" || n.Type == "fixed" || look(n.Items) || look(n.Values) {
			return true
		}
		for i := range n.Fields {
			if look(&n.Fields[i].Type) {
				return true
			}
		}
		for i := range n.Branches {
			if look(&n.Branches[i]) {
				return true
			}
		}
		return false
	}
	return look(t.Root)
}

// A writer converts JSON as Values returns it to Avro's encoding of bytes.
type writer struct {
	tree
	// strict refuses a text for a decimal, which else is taken for its bytes, so that "12.50" becomes another number, and null for
	// a float or a double, which else becomes NaN.
	strict bool
}

// convert converts a whole text.
func (w writer) convert(text []byte) ([]byte, error) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	v, err := w.value("", w.Root, v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// value converts v, which is to be written with schema n. What does not fit n stays as it is: the encoder refuses it.
func (w writer) value(path string, n *avro.SchemaNode, v any) (_ any, err error) {
	n = w.Follow(n)
	if n.Type == "union" {
		return w.union(path, n, v)
	}
	switch v := v.(type) {
	case nil:
		if w.strict && n.Type != "null" { // goavro writes NaN for it, if n is a double
			return nil, fmt.Errorf("%s: want a %s, got null", path, w.Describe(n))
		}
	case map[string]any:
		for i := range n.Fields {
			f := &n.Fields[i]
			if inner, has := v[f.Name]; has {
				if v[f.Name], err = w.value(avsc.InPath(path, f.Name), &f.Type, inner); err != nil {
					return nil, err
				}
			}
		}
		for name, inner := range v {
			if n.Values == nil {
				break
			}
			if v[name], err = w.value(avsc.InPath(path, name), n.Values, inner); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if n.Items == nil {
				break
			}
			if v[i], err = w.value(avsc.AtIndex(path, i), n.Items, v[i]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if isDecimal(n) {
			text, err := decimalOf(n, v)
			if err != nil {
				return nil, fmt.Errorf("%s: want a %s, got %w", path, avsc.DescribeLogical(n), err)
			}
			return escapedBytes(text)
		}
	case string:
		if isUUID(n) {
			v = uuidBytes(v)
		}
		if isDecimal(n) && w.strict {
			return nil, fmt.Errorf("%s: want a number for a %s, got a text", path, avsc.DescribeLogical(n))
		}
		if n.Type == "bytes" || n.Type == "fixed" {
			text, err := escapedBytes(v)
			if err != nil {
				return nil, fmt.Errorf("%s: want a %s, got a text in which %w", path, n.Type, err)
			}
			return text, nil
		}
	}
	return v, nil
}

// union converts the value of a union: one that names its branch, or a bare one by the only branch that can hold it.
func (w writer) union(path string, n *avro.SchemaNode, v any) (any, error) {
	if m, is := v.(map[string]any); is && len(m) == 1 {
		for name, inner := range m {
			if b := w.branchOf(n, name); b != nil {
				converted, err := w.value(path, b, inner)
				return map[string]any{name: converted}, err
			}
		}
	}
	if v == nil {
		if w.strict && !slices.ContainsFunc(n.Branches, func(b avro.SchemaNode) bool { return b.Type == "null" }) {
			return nil, fmt.Errorf("%s: want a %s, got null", path, w.Describe(n))
		}
		return v, nil
	}
	var fits []*avro.SchemaNode
	for i := range n.Branches {
		if b := w.Follow(&n.Branches[i]); holds(b, v) {
			fits = append(fits, b)
		}
	}
	if len(fits) == 0 {
		return v, nil
	}
	if number, is := v.(json.Number); is && w.strict && len(fits) > 1 && rounded(fits, number) {
		return nil, fmt.Errorf("%s: the first branch of the union that takes the number would round it: name the branch", path)
	}
	if _, text := v.(string); !text && len(fits) > 1 {
		return v, nil // the encoder chooses, or refuses it
	}
	if _, number := v.(json.Number); number && isDecimal(fits[0]) && len(n.Branches) > 2 { // its text could be another branch's
		return nil, fmt.Errorf("%s: name the branch of the union: {\"%s\": …}", path, cmp.Or(avsc.FullName(fits[0]), fits[0].Type+"."+fits[0].LogicalType))
	}
	return w.value(path, fits[0], v)
}

// holds reports whether a bare value of a union can be of branch b.
func holds(b *avro.SchemaNode, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return avsc.KindOf(b) == "record" || b.Type == "map"
	case []any:
		return b.Type == "array"
	case json.Number:
		return isDecimal(b) || b.Type == "int" || b.Type == "long" || b.Type == "float" || b.Type == "double"
	case string:
		_, err := bytesOf(v)
		return b.Type == "string" || b.Type == "bytes" && err == nil || b.Type == "enum" && slices.Contains(b.Symbols, v) ||
			b.Type == "fixed" && (err == nil && utf8.RuneCountInString(v) == b.Size || isUUID(b) && uuidBytes(v) != v)
	}
	return false
}

// rounded reports whether the encoder would round a whole number: of several branches it takes a double first, then a float.
func rounded(fits []*avro.SchemaNode, number json.Number) bool {
	n, err := number.Int64()
	if err != nil {
		return false
	}
	has := func(typ string) bool {
		return slices.ContainsFunc(fits, func(b *avro.SchemaNode) bool { return b.Type == typ })
	}
	exact := func(f float64) bool { return f < 1<<63 && int64(f) == n }
	switch {
	case has("double"):
		return !exact(float64(n))
	case has("float"):
		return !exact(float64(float32(n)))
	}
	return false
}
