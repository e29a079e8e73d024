package orders_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
)

const header = "order_id,customer_id,placed_at,quantity,amount\n"

func read(text string) ([]orders.Order, error) { return orders.Read("o.csv", strings.NewReader(text)) }

func TestGoodFilesAreRead(t *testing.T) {
	want := []orders.Order{
		{ID: "o-1", CustomerID: "c-1", PlacedAt: "1997-01-31", Quantity: 2, AmountCents: 2933},
		{ID: "o-2", CustomerID: "c-1", PlacedAt: "1997-02-01", Quantity: 1, AmountCents: 0},
	}
	for name, text := range map[string]string{
		"as documented":      header + "o-1,c-1,1997-01-31,2,29.33\no-2,c-1,1997-02-01,1,0.00\n",
		"no last newline":    header + "o-1,c-1,1997-01-31,2,29.33\no-2,c-1,1997-02-01,1,0",
		"byte order mark":    "\ufeff" + header + "o-1,c-1,1997-01-31,2,29.33\no-2,c-1,1997-02-01,1,0.00\n",
		"CRLF":               strings.ReplaceAll(header+"o-1,c-1,1997-01-31,2,29.33\no-2,c-1,1997-02-01,1,0.00\n", "\n", "\r\n"),
		"other column order": "amount,quantity,placed_at,customer_id,order_id\n29.33,2,1997-01-31,c-1,o-1\n0.00,1,1997-02-01,c-1,o-2\n",
		"further columns":    "order_id,note,customer_id,placed_at,quantity,amount\no-1,\xff,c-1,1997-01-31,2,29.33\no-2,,c-1,1997-02-01,1,0.0\n",
		"quotes":             header + "\"o-1\",\"c-1\",1997-01-31,\"2\",29.33\no-2,c-1,1997-02-01,1,0.00\n",
		"empty lines":        header + "\no-1,c-1,1997-01-31,2,29.33\n\no-2,c-1,1997-02-01,1,0.00\n\n",
	} {
		got, err := read(text)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

func TestBadFilesAreRefusedWithLineColumnAndReason(t *testing.T) {
	const good = "o-1,c-1,1997-01-31,2,29.33\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty file":               {"", "o.csv: empty: want a header with order_id, customer_id, placed_at, quantity, amount, and orders"},
		"nothing but a mark":       {"\ufeff", "o.csv: empty: want a header"},
		"nothing but a header":     {header, "o.csv:1: no orders after the header"},
		"missing column":           {"order_id,customer_id,placed_at,quantity\no-1,c-1,1997-01-31,2\n", `o.csv:1: amount: missing in the header, which has "order_id", "customer_id"`},
		"column in capitals":       {strings.ToUpper(header) + good, `o.csv:1: order_id: missing in the header, which has "ORDER_ID"`},
		"column twice":             {"order_id,customer_id,placed_at,quantity,amount,amount\no-1,c-1,1997-01-31,2,1,1\n", "o.csv:1: amount: twice in the header"},
		"no header":                {good, "o.csv:1: order_id: missing in the header"},
		"semicolons":               {strings.ReplaceAll(header+good, ",", ";"), "o.csv:1: order_id: missing in the header"},
		"field too few":            {header + "o-1,c-1,1997-01-31,2\n", "o.csv:2: 4 fields: the header has 5"},
		"field too many":           {header + good + "o-2,c-1,1997-01-31,2,29.33,\n", "o.csv:3: 6 fields: the header has 5"},
		"open quote":               {header + "\"o-1,c-1,1997-01-31,2,29.33\n", "o.csv:2: byte 29: extraneous or missing \" in quoted-field"},
		"bare quote":               {header + "o\"1,c-1,1997-01-31,2,29.33\n", "o.csv:2: byte 2: bare \" in non-quoted-field"},
		"quantity zero":            {header + "o-1,c-1,1997-01-31,0,29.33\n", `o.csv:2: quantity: "0" is no whole number from 1 to 2147483647`},
		"quantity negative":        {header + "o-1,c-1,1997-01-31,-2,29.33\n", `o.csv:2: quantity: "-2" is no`},
		"quantity with a sign":     {header + "o-1,c-1,1997-01-31,+2,29.33\n", `o.csv:2: quantity: "+2" is no`},
		"quantity a fraction":      {header + "o-1,c-1,1997-01-31,2.0,29.33\n", `o.csv:2: quantity: "2.0" is no`},
		"quantity a word":          {header + "o-1,c-1,1997-01-31,two,29.33\n", `o.csv:2: quantity: "two" is no`},
		"quantity empty":           {header + "o-1,c-1,1997-01-31,,29.33\n", `o.csv:2: quantity: "" is no`},
		"quantity huge":            {header + "o-1,c-1,1997-01-31,2147483648,29.33\n", `o.csv:2: quantity: "2147483648" is no`},
		"amount negative":          {header + "o-1,c-1,1997-01-31,2,-0.01\n", `o.csv:2: amount: amount "-0.01" is negative`},
		"amount of three decimals": {header + "o-1,c-1,1997-01-31,2,29.333\n", `o.csv:2: amount: amount "29.333" has more than two decimals`},
		"amount a word":            {header + "o-1,c-1,1997-01-31,2,free\n", `o.csv:2: amount: amount "free" is no decimal number`},
		"amount empty":             {header + "o-1,c-1,1997-01-31,2,\n", `o.csv:2: amount: amount "" is no decimal number`},
		"date of no calendar":      {header + "o-1,c-1,1997-02-30,2,29.33\n", `o.csv:2: placed_at: "1997-02-30" is no date such as 1997-01-31`},
		"order id empty":           {header + ",c-1,1997-01-31,2,29.33\n", "o.csv:2: order_id: missing"},
		"order id long":            {header + strings.Repeat("o", 201) + ",c-1,1997-01-31,2,29.33\n", "o.csv:2: order_id: longer than 200 bytes"},
		"order id with a NUL":      {header + "o\x001,c-1,1997-01-31,2,29.33\n", `o.csv:2: order_id: "o\x001" has a character that cannot be printed`},
		"order id of two lines":    {header + "\"o\n1\",c-1,1997-01-31,2,29.33\n", `o.csv:2: order_id: "o\n1" has a character that cannot be printed`},
		"order id that is a path":  {header + "..,c-1,1997-01-31,2,29.33\n", `o.csv:2: order_id: ".." cannot be a part of a path`},
		"customer id empty":        {header + "o-1,,1997-01-31,2,29.33\n", "o.csv:2: customer_id: missing"},
		"order id repeated":        {header + good + "o-2,c-1,1997-01-31,2,29.33\n" + good, `o.csv:4: order_id: "o-1" is in line 2 too`},
		"bad UTF-8":                {header + "o-1,c\xff1,1997-01-31,2,29.33\n", "o.csv:2: customer_id: not UTF-8"},
		"a line without end":       {header + good + strings.Repeat("x", 70_000), "o.csv:3: 1 fields: the header has 5"},
		"the second problem":       {header + "o-1,c-1,1997-01-31,0,1\no-2,c-1,1997-01-31,1,-1\n", `o.csv:3: amount: amount "-1" is negative`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.text)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestTenProblemsAreEnough(t *testing.T) {
	_, err := read(header + strings.Repeat("o-1,c-1,1997-01-31,0,1.00\n", 100))
	require.ErrorContains(t, err, "more than 10 problems; the others are not listed")
	require.Len(t, strings.Split(err.Error(), "\n"), 11)
}

func TestAFileThatNeverEndsIsGivenUp(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(header), endlessLines{})
	_, err := orders.Read("o.csv", endless)
	require.ErrorContains(t, err, "the others are not listed")
}

// endlessLines is a reader that repeats the same bad order.
type endlessLines struct{}

func (endlessLines) Read(p []byte) (int, error) { return copy(p, "o-1,c-1,1997-01-31,0,1.00\n"), nil }

func TestFilesThatAreNoneAreRefused(t *testing.T) {
	dir := t.TempDir()
	_, err := orders.ReadFile(filepath.Join(dir, "absent.csv"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent.csv")
	_, err = orders.ReadFile(dir)
	require.ErrorContains(t, err, "a folder")
	huge := filepath.Join(dir, "huge.csv")
	require.NoError(t, os.WriteFile(huge, nil, 0o600))
	require.NoError(t, os.Truncate(huge, 300<<20))
	_, err = orders.ReadFile(huge)
	require.ErrorContains(t, err, "huge.csv: 314572800 bytes: want at most 67108864")
	good := filepath.Join(dir, "good.csv")
	require.NoError(t, os.WriteFile(good, []byte(header+"o-1,c-1,1997-01-31,2,29.33\n"), 0o600))
	got, err := orders.ReadFile(good)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestTheSampleIsGood(t *testing.T) {
	sample, err := orders.Sample()
	require.NoError(t, err)
	require.Len(t, sample, 400)
	require.Equal(t, orders.Order{ID: "cdnow-00001", CustomerID: "00004", PlacedAt: "1997-01-01", Quantity: 2, AmountCents: 2933}, sample[0])
}

// FuzzRead checks that every order that Read returns is as the package promises.
func FuzzRead(f *testing.F) {
	f.Add([]byte(header + "o-1,c-1,1997-01-31,2,29.33\no-2,c-1,1997-02-01,1,0.00\n"))
	f.Add([]byte("\ufeff" + header + "\"o\n1\",c-1,1997-01-31,2,29.33\r\n"))
	f.Add([]byte("amount,quantity,placed_at,customer_id,order_id,order_id\n"))
	f.Add([]byte(header + "o-1,c\xff1,1997-01-31,0,-1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := orders.Read("o.csv", bytes.NewReader(text))
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "o.csv:"), err.Error())
			return
		}
		require.NotEmpty(t, got)
		again := header
		for _, o := range got {
			require.Positive(t, o.Quantity)
			require.GreaterOrEqual(t, o.AmountCents, int64(0))
			again += fmt.Sprintf("%s,%s,%s,%d,%s\n", csvText(o.ID), csvText(o.CustomerID), o.PlacedAt, o.Quantity, demo.Decimal(o.AmountCents))
		}
		same, err := read(again)
		require.NoError(t, err)
		require.Equal(t, got, same)
	})
}

func csvText(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func BenchmarkRead(b *testing.B) {
	var text bytes.Buffer
	text.WriteString(header)
	for n := range 10_000 {
		fmt.Fprintf(&text, "o-%d,c-%d,1997-01-31,2,29.33\n", n, n%100)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		_, err := orders.Read("o.csv", bytes.NewReader(text.Bytes()))
		require.NoError(b, err)
	}
}
