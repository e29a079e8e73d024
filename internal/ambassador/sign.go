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

// leastSecret is the minimum length of a secret, in bytes: a shorter one can be guessed. standard-webhooks has 24 too.
const leastSecret = 24

// A Signer sets the headers that prove to the service that the ambassador sent a body. id is the Idempotency-Key. It may be
// used concurrently.
type Signer func(header http.Header, id string, at time.Time, body []byte)

// StandardWebhooks returns a Signer of standard-webhooks 1.0. It sets webhook-id, webhook-timestamp and webhook-signature
// (v1, HMAC-SHA256 of id, timestamp and body joined by dots, in base64). The secret is base64, with or without the prefix
// whsec_, of 24 to 64 bytes. No error contains the secret.
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

// GitHub returns a Signer like GitHub's webhooks: X-Hub-Signature-256 is sha256= and the HMAC-SHA256 of the body in hex. It
// does not cover the time, so a recorded request can be sent again, which has no effect on a service that checks the
// idempotency key. The secret is a text of at least 24 bytes.
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
