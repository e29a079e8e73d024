// Package logbridge connects Troupe's logs to log/slog: Logger returns a zerolog.Logger, for the field Log of each Config, that writes to
// a slog.Handler.
//
//	participant.Config{Log: logbridge.Logger(slog.Default().Handler()), …}
//
// Each line becomes one slog.Record with the same level, message and fields, in their order. The level trace becomes slog.LevelDebug-4,
// fatal and panic become slog.LevelError+4, and a line without a level gets slog.LevelInfo. Values are read from the line's JSON: whole
// numbers become int64, other numbers float64, objects groups; durations and times become the numbers and strings that zerolog writes.
// zerolog encodes a line before the handler is asked for its level, so a line that the handler drops still costs the encoding.
//
// For the opposite direction, from slog to zerolog, use zerolog.NewSlogHandler.
package logbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// Logger returns a logger that writes to h. zerolog reports an error of h through zerolog.ErrorHandler, like an error of any
// writer.
func Logger(h slog.Handler) zerolog.Logger { return zerolog.New(writer{h}) }

// writer receives zerolog's lines.
type writer struct{ to slog.Handler }

// Write passes on a line without a level.
func (w writer) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel passes on a line as a record.
func (w writer) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	ctx, to := context.Background(), levelOf(level)
	if !w.to.Enabled(ctx, to) {
		return len(line), nil
	}
	record, err := parse(to, line)
	if err == nil {
		err = w.to.Handle(ctx, record)
	}
	if err != nil {
		return 0, fmt.Errorf("logbridge: %w", err)
	}
	return len(line), nil
}

func levelOf(level zerolog.Level) slog.Level {
	switch level {
	case zerolog.TraceLevel:
		return slog.LevelDebug - 4
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel:
		return slog.LevelError
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return slog.LevelError + 4
	}
	return slog.LevelInfo
}

// parse reads a line. The level, message and time become the record's own.
func parse(level slog.Level, line []byte) (slog.Record, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return slog.Record{}, errors.Join(errors.New("the line is not a JSON object"), err)
	}
	fields, err := object(d)
	if err != nil {
		return slog.Record{}, err
	}
	r := slog.NewRecord(time.Now(), level, "", 0)
	for _, f := range fields {
		switch f.Key {
		case zerolog.LevelFieldName:
		case zerolog.MessageFieldName:
			r.Message = f.Value.String()
		case zerolog.TimestampFieldName:
			if at, err := time.Parse(zerolog.TimeFieldFormat, f.Value.String()); err == nil {
				r.Time = at
			}
		default:
			r.AddAttrs(f)
		}
	}
	return r, nil
}

// object reads the members of an object up to its end, in their order.
func object(d *json.Decoder) (members []slog.Attr, err error) {
	for {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return members, nil // the end
		}
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		members = append(members, slog.Attr{Key: name, Value: v})
	}
}

func value(d *json.Decoder) (slog.Value, error) {
	token, err := d.Token()
	if err != nil {
		return slog.Value{}, err
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			members, err := object(d)
			return slog.GroupValue(members...), err
		}
		return array(d)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return slog.Int64Value(n), nil
		}
		n, err := v.Float64()
		return slog.Float64Value(n), err
	}
	return slog.AnyValue(token), nil
}

// array reads the elements of an array up to its end.
func array(d *json.Decoder) (slog.Value, error) {
	all := []any{}
	for d.More() {
		v, err := value(d)
		if err != nil {
			return slog.Value{}, err
		}
		all = append(all, plain(v))
	}
	_, err := d.Token() // the end
	return slog.AnyValue(all), err
}

// plain returns a value as encoding/json would write it in an array.
func plain(v slog.Value) any {
	if v.Kind() != slog.KindGroup {
		return v.Any()
	}
	members := make(map[string]any)
	for _, m := range v.Group() {
		members[m.Key] = plain(m.Value)
	}
	return members
}
