package demo_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
)

func TestCentsReadsDecimalText(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "0.00": 0, "0.01": 1, "0.1": 10, "29.33": 2933, "29.3": 2930, "29": 2900, "007.50": 750,
		"92233720368547758.07":             math.MaxInt64,
		"000000000000000000000000001.00":   100,
		"8.95":                             895, // 8.95 * 100 is 894.999… in floats
		"1.10":                             110,
		"4503599627370497.51":              450359962737049751, // more than a float64 holds
		strings.Repeat("0", 100) + "12.34": 1234,
	} {
		got, err := demo.Cents(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestCentsSaysWhatIsWrong(t *testing.T) {
	for text, reason := range map[string]string{
		"":                     "no decimal number",
		".":                    "no decimal number",
		"1.":                   "no decimal number",
		".5":                   "no decimal number",
		"+1":                   "no decimal number",
		"1e3":                  "no decimal number",
		"1,000.00":             "no decimal number",
		" 1":                   "no decimal number",
		"1.2.3":                "no decimal number",
		"0x10":                 "no decimal number",
		"NaN":                  "no decimal number",
		"٣.٠٠":                 "no decimal number", // digits, but not ASCII ones
		"-0.01":                "negative",
		"1.234":                "more than two decimals",
		"1.000":                "more than two decimals",
		"92233720368547758.08": "more than 92,233",
		"99999999999999999999": "more than 92,233",
	} {
		_, err := demo.Cents(text)
		require.ErrorContains(t, err, reason, text)
	}
}

// FuzzCents compares Cents with arbitrary-precision arithmetic, and Decimal with Cents.
func FuzzCents(f *testing.F) {
	for _, seed := range []string{"29.33", "0.00", "92233720368547758.07", "92233720368547758.08", "-1", "1.", "1e9", "0001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cents, err := demo.Cents(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, cents, int64(0))
		exact, ok := new(big.Rat).SetString(text)
		require.True(t, ok)
		require.Zero(t, exact.Mul(exact, big.NewRat(100, 1)).Cmp(new(big.Rat).SetInt64(cents)), "%s became %d", text, cents)
		again, err := demo.Cents(demo.Decimal(cents))
		require.NoError(t, err)
		require.Equal(t, cents, again)
	})
}
