package topics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/topics"
)

func TestNamesSurviveParsing(t *testing.T) {
	hop := topics.MustHop("order-r7f3", "payment")
	for name, want := range map[string]topics.Topic{
		"order-r7f3.payment.commands":  {Hop: hop, Kind: topics.Commands},
		"order-r7f3.payment.events":    {Hop: hop, Kind: topics.Events},
		"order-r7f3.payment.dlq":       {Hop: hop, Kind: topics.DeadLetters},
		"order-r7f3.payment.retry.90s": {Hop: hop, Kind: topics.Retry, Delay: 90 * time.Second},
	} {
		got, err := topics.Parse(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, name, got.String())
	}
}

func TestNamesOutsideTheGrammarAreRefused(t *testing.T) {
	for _, name := range []string{
		"", "order", "order.payment", "order.payment.", "order.payment.replies", "Order.payment.events",
		"order.pay_ment.events", "-order.payment.events", "order.payment.events.x", "order.payment.retry",
		"order.payment.retry.1m30s", "order.payment.retry.0s", "order.payment.retry.-5s", "order.payment.retry.500ms",
		"order.payment.retry.9999999999999999s", strings.Repeat("a", 64) + ".payment.events", "ordér.payment.events",
	} {
		_, err := topics.Parse(name)
		require.ErrorIs(t, err, topics.ErrName, "%q", name)
	}
}

func TestTheLongestNameFitsKafka(t *testing.T) {
	hop := topics.MustHop(strings.Repeat("a", 63), strings.Repeat("b", 63))
	require.LessOrEqual(t, len(hop.Retry(1<<62/time.Second*time.Second)), 249)
}

func FuzzParse(f *testing.F) {
	f.Add("order.payment.events")
	f.Add("order.payment.retry.30s")
	f.Fuzz(func(t *testing.T, name string) {
		got, err := topics.Parse(name)
		if err == nil && got.String() != name {
			t.Fatalf("%q parsed as %q", name, got)
		}
	})
}

func ExampleHop() {
	payment := topics.MustHop("order", "payment")
	fmt.Println(payment.Commands())
	fmt.Println(payment.Events())
	fmt.Println(payment.Retry(30 * time.Second))
	// Output:
	// order.payment.commands
	// order.payment.events
	// order.payment.retry.30s
}
