package ambassador

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// leastSecret is the length, in bytes, below which a secret can be guessed; standard-webhooks has 24 too.
const leastSecret = 24

// A Signer sets the headers by which the service knows that a body is the ambassador's. id is the Idempotency-Key. It
// may be used concurrently.
type Signer func(header http.Header, id string, at time.Time, body []byte)

// StandardWebhooks signs as standard-webhooks 1.0 does: webhook-id, webhook-timestamp and webhook-signature (v1,
// HMAC-SHA256 of the three with dots between them, in base64). The secret is in base64, with or without whsec_ before it,
// of 24 to 64 bytes. No error has the secret.
func StandardWebhooks(secret string) (Signer, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return nil, errors.New("the signing secret is no base64, such as whsec_ and what openssl rand -base64 32 gives")
	}
	if len(key) < leastSecret || len(key) > 64 {
		return nil, fmt.Errorf("the signing secret has %d bytes: want %d to 64", len(key), leastSecret)
	}
	return func(header http.Header, id string, at time.Time, body []byte) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(id + "." + stamp + "."))
		_, _ = mac.Write(body)
		header.Set("webhook-id", id)
		header.Set("webhook-timestamp", stamp)
		header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}, nil
}

// GitHub signs as GitHub's webhooks are: X-Hub-Signature-256 with sha256= and the HMAC-SHA256 of the body in hex. It does not
// cover the time, so what was overheard can be sent again: behind an idempotency key that does nothing. The secret is text
// of 24 bytes or more.
func GitHub(secret string) (Signer, error) {
	if len(secret) < leastSecret {
		return nil, fmt.Errorf("the signing secret has %d bytes: want %d or more", len(secret), leastSecret)
	}
	return func(header http.Header, _ string, _ time.Time, body []byte) {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write(body)
		header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}, nil
}
