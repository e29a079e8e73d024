package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// skew is the difference between two clocks that servers usually accept when they check a token.
const skew = time.Minute

// Explain returns why a server may refuse a token: the times in the token show that it has expired, or that it is not valid
// yet. It returns "" if the token is valid now, or contains no times. It reads JSON Web Tokens, and tokens that are presigned
// AWS requests, such as the tokens of RDS. The result contains no other part of the token.
func Explain(token string, now time.Time) string {
	begin, end := times(token)
	stamp := func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05Z") }
	switch {
	case !end.IsZero() && now.After(end):
		return fmt.Sprintf("the token expired at %s, and it is %s here: the command or file gives an old token, or this machine's clock is ahead", stamp(end), stamp(now))
	case !begin.IsZero() && begin.Sub(now) > skew:
		return fmt.Sprintf("the token is valid from %s, and it is %s here: this machine's clock is behind", stamp(begin), stamp(now))
	}
	return ""
}

// times returns the times from and until which a token is valid; zero: unknown.
func times(token string) (begin, end time.Time) {
	if _, query, is := strings.Cut(token, "?"); is && strings.Contains(query, "X-Amz-Date=") {
		values, err := url.ParseQuery(query)
		if err != nil {
			return begin, end
		}
		seconds, err := strconv.Atoi(values.Get("X-Amz-Expires"))
		if begin, _ = time.Parse("20060102T150405Z", values.Get("X-Amz-Date")); err == nil && !begin.IsZero() {
			end = begin.Add(time.Duration(seconds) * time.Second)
		}
		return begin, end
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return begin, end
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return begin, end
	}
	var claims struct {
		IssuedAt  float64 `json:"iat"`
		NotBefore float64 `json:"nbf"`
		Expires   float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return begin, end
	}
	if from := max(claims.IssuedAt, claims.NotBefore); from > 0 {
		begin = time.Unix(int64(from), 0)
	}
	if claims.Expires > 0 {
		end = time.Unix(int64(claims.Expires), 0)
	}
	return begin, end
}
