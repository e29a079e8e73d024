package logbridge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/logbridge"
)

// lines returns a logger and the records that it has written.
func lines(level slog.Leveler) (zerolog.Logger, func(t *testing.T) []map[string]any) {
	var out bytes.Buffer
	log := logbridge.Logger(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level}))
	return log, func(t *testing.T) (all []map[string]any) {
		t.Helper()
		for d := json.NewDecoder(&out); d.More(); {
			var line map[string]any
			require.NoError(t, d.Decode(&line))
			all = append(all, line)
		}
		return all
	}
}

func TestALineIsARecord(t *testing.T) {
	t.Parallel()
	log, read := lines(slog.LevelDebug)
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	log = log.With().Str("service", "payment").Time(zerolog.TimestampFieldName, at).Logger()
	log.Info().Str("text", "ü \"q\" \n").Int64("large", 1<<62).Float64("part", 0.5).Bool("yes", true).Err(errors.New("gone")).
		Dur("took", 1500*time.Millisecond).Strs("all", []string{"a", "b"}).Bytes("bytes", []byte("b")).Interface("none", nil).
		Dict("in", zerolog.Dict().Int("n", 1).Dict("deep", zerolog.Dict().Str("s", "x"))).
		Array("of", zerolog.Arr().Dict(zerolog.Dict().Int("n", 1)).Int(2)).Msg("done")
	require.Equal(t, []map[string]any{{
		"time": "2026-02-03T04:05:06Z", "level": "INFO", "msg": "done", "service": "payment",
		"text": "ü \"q\" \n", "large": float64(1 << 62), "part": 0.5, "yes": true, "error": "gone", "took": float64(1500),
		"all": []any{"a", "b"}, "bytes": "b", "none": nil,
		"in": map[string]any{"n": 1.0, "deep": map[string]any{"s": "x"}},
		"of": []any{map[string]any{"n": 1.0}, 2.0},
	}}, read(t))
}

func TestFieldsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logbridge.Logger(slog.NewTextHandler(&out, nil))
	log.Info().Int("c", 1).Int("a", 2).Int("b", 3).Msg("m")
	require.Regexp(t, `^time=\S+ level=INFO msg=m c=1 a=2 b=3\n$`, out.String())
}

func TestLevels(t *testing.T) {
	t.Parallel()
	var level slog.LevelVar
	level.Set(slog.LevelDebug - 4)
	log, read := lines(&level)
	for _, l := range []zerolog.Level{
		zerolog.TraceLevel, zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel, zerolog.FatalLevel,
		zerolog.PanicLevel, zerolog.NoLevel,
	} {
		log.WithLevel(l).Msg("")
	}
	log.Log().Msg("without")
	var got []any
	for _, line := range read(t) {
		got = append(got, line["level"])
	}
	require.Equal(t, []any{"DEBUG-4", "DEBUG", "INFO", "WARN", "ERROR", "ERROR+4", "ERROR+4", "INFO", "INFO"}, got)

	level.Set(slog.LevelError) // the handler decides at each line
	log.Warn().Msg("dropped")
	require.Empty(t, read(t))
	log.Error().Msg("written")
	require.Len(t, read(t), 1)
}

func BenchmarkLogger(b *testing.B) {
	log := logbridge.Logger(slog.NewJSONHandler(discard{}, nil))
	b.ReportAllocs()
	for b.Loop() {
		log.Info().Str("topic", "order.payment.commands").Int("partition", 3).Int64("offset", 12).Msg("partition assigned")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
