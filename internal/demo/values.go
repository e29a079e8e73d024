package demo

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckID returns why an id of an order or a customer is invalid, or "": it becomes a key in Kafka, a word in logs and a part of a
// path.
func CheckID(id string) (reason string) {
	switch {
	case id == "":
		return "missing"
	case len(id) > 200:
		return "longer than 200 bytes"
	case id == "." || id == "..":
		return fmt.Sprintf("%q cannot be a part of a path", id)
	case strings.ContainsFunc(id, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }):
		return fmt.Sprintf("%.40q has a character that cannot be printed", id)
	}
	return ""
}

// Cents parses an amount of money from decimal text: "29.33", "29.3" and "29" are 2933, 2930 and 2900. It uses no floats. It
// refuses signs, exponents, separators, more than two decimals, and amounts that do not fit into 64 bits.
func Cents(text string) (int64, error) {
	whole, fraction, point := strings.Cut(text, ".")
	switch {
	case strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("amount %q is negative", text)
	case whole == "" || point && fraction == "" || !digits(whole) || !digits(fraction):
		return 0, fmt.Errorf("amount %q is no decimal number such as 29.33", text)
	case len(fraction) > 2:
		return 0, fmt.Errorf("amount %q has more than two decimals", text)
	}
	var cents int64
	for _, digit := range whole + (fraction + "00")[:2] {
		d := int64(digit - '0')
		if cents > (math.MaxInt64-d)/10 {
			return 0, fmt.Errorf("amount %q: %w", text, errTooMuch)
		}
		cents = cents*10 + d
	}
	return cents, nil
}

// Decimal returns the text that Cents parses: "29.33" for 2933. cents must not be negative.
func Decimal(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

var errTooMuch = errors.New("more than 92,233,720,368,547,758.07")

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }
