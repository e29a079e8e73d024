package logbridge_test

import (
	"log/slog"
	"os"

	"github.com/troupe-go/troupe/logbridge"
	"github.com/troupe-go/troupe/participant"
)

func Example() {
	handler := slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // so that the output is the same each time
		}
		return a
	}})
	cfg := participant.Config{
		Log: logbridge.Logger(handler.WithAttrs([]slog.Attr{slog.String("service", "payment")})),
	}
	cfg.Log.Warn().Str("topic", "order.payment.commands").Int("partition", 3).Msg("partition lost")
	// Output:
	// {"level":"WARN","msg":"partition lost","service":"payment","topic":"order.payment.commands","partition":3}
}
