package demo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
)

func TestParseFail(t *testing.T) {
	f, err := demo.ParseFail("payment=7%, inventory=0.5%,shipping=100%")
	require.NoError(t, err)
	require.Equal(t, demo.Fail{"payment": 0.07, "inventory": 0.005, "shipping": 1}, f)
	require.Equal(t, "payment=7%,inventory=0.5%,shipping=100%", f.String())

	f, err = demo.ParseFail("")
	require.NoError(t, err)
	require.Empty(t, f)
	require.Empty(t, f.String())
}

func TestParseFailSaysWhatIsWrong(t *testing.T) {
	for text, reason := range map[string]string{
		"payment":                "want hop=share",
		"payment=2%,":            "want hop=share",
		"paiment=2%":             `no hop "paiment" can refuse: want one of payment, inventory, shipping`,
		"order=2%":               "no hop",
		"payment=2":              "want 0% to 100%",
		"payment=%":              "want 0% to 100%",
		"payment=-1%":            "want 0% to 100%",
		"payment=101%":           "want 0% to 100%",
		"payment=NaN%":           "want 0% to 100%",
		"payment=1%,payment=2%":  "named twice",
		"payment=1%;shipping=2%": "want 0% to 100%",
	} {
		_, err := demo.ParseFail(text)
		require.ErrorContains(t, err, reason, text)
	}
}

func TestRefusalsAreChosenBySeedOrderAndHop(t *testing.T) {
	f := demo.Fail{"payment": 0.02, "inventory": 0, "shipping": 1}
	refused, other := 0, 0
	for n := range 10_000 {
		id := fmt.Sprintf("order-%05d", n)
		require.False(t, f.Refuses(1, id, "inventory"))
		require.False(t, demo.Fail(nil).Refuses(1, id, "payment"))
		require.True(t, f.Refuses(1, id, "shipping"))
		require.Equal(t, f.Refuses(1, id, "payment"), f.Refuses(1, id, "payment"))
		if f.Refuses(1, id, "payment") {
			refused++
			if f.Refuses(2, id, "payment") {
				other++
			}
		}
	}
	require.InDelta(t, 200, refused, 60)
	require.Less(t, other, 30, "another seed chooses other orders")
}
