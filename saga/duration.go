package saga

import (
	"fmt"
	"strings"
	"time"
)

// A Duration is a time.Duration. Its text, also in JSON, is in Go's notation: 500ms, 30s, 240h.
type Duration time.Duration

// String returns the duration without trailing units that are zero: 4m, not 4m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText returns String as bytes.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the format of time.ParseDuration. It accepts durations from 0 to ten years.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 || v > maxDuration {
		return noDuration(text)
	}
	*d = Duration(v)
	return nil
}

// noDuration is the error about a text that is no Duration. Its value is the text.
type noDuration string

func (text noDuration) Error() string {
	return fmt.Sprintf("duration %q: want such as 500ms, 30s or 240h, at most %s", string(text), Duration(maxDuration))
}

const maxDuration = 10 * 366 * 24 * time.Hour
