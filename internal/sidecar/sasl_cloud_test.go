//go:build unix

package sidecar

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sasl"
)

// mechanismOf returns the mechanism of a relay with these settings of Kafka.
func mechanismOf(t *testing.T, settings ...string) (sasl.Mechanism, error) {
	t.Helper()
	cmd := &cobra.Command{}
	declareOne(cmd, serverSettings...)
	v, err := Program{Environ: settings}.read(cmd, serverSettings...)
	require.NoError(t, err)
	return v.sasl()
}

// first returns what a client sends first to a broker.
func first(t *testing.T, m sasl.Mechanism, broker string) (string, error) {
	t.Helper()
	_, sent, err := m.Authenticate(t.Context(), broker)
	return string(sent), err
}

const amazon = "b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com"

// signed reports the access key of a client's first message to Amazon MSK, after it has computed the signature as AWS's
// description of Signature Version 4 says: of a GET of / at the host, with the fields of the message as query.
func signed(t *testing.T, message, secret string) (accessKey string) {
	t.Helper()
	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(message), &fields))
	require.Equal(t, "2020_10_22", fields["version"])
	require.Equal(t, "kafka-cluster:Connect", fields["action"])
	require.Equal(t, "900", fields["x-amz-expires"])
	require.Equal(t, amazon, fields["host"])
	at, err := time.Parse("20060102T150405Z", fields["x-amz-date"])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, 10*time.Minute)
	escape := func(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
	query := make(map[string]string)
	for _, name := range []string{"Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Security-Token"} {
		if value, has := fields[strings.ToLower(name)]; has {
			query[name] = value
		}
	}
	var canonical []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		canonical = append(canonical, escape(name)+"="+escape(query[name]))
	}
	sum := func(text string) string {
		h := sha256.Sum256([]byte(text))
		return hex.EncodeToString(h[:])
	}
	request := "GET\n/\n" + strings.Join(canonical, "&") + "\nhost:" + amazon + "\n\nhost\n" + sum("")
	scope := fields["x-amz-date"][:8] + "/eu-west-1/kafka-cluster/aws4_request"
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+fields["x-amz-date"]+"\n"+scope+"\n"+sum(request)) {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	require.Equal(t, hex.EncodeToString(key), fields["x-amz-signature"])
	accessKey, found := strings.CutSuffix(fields["x-amz-credential"], "/"+scope)
	require.True(t, found, fields["x-amz-credential"])
	return accessKey
}

func keysJSON(id string, end time.Time) string {
	expires := ""
	if !end.IsZero() {
		expires = `, "Expiration": "` + end.UTC().Format(time.RFC3339) + `"`
	}
	return fmt.Sprintf(`{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "s3cr3t-%s/+=", "SessionToken": "session/+=%s"%s}`, id, id, id, expires)
}

// Each connection to Amazon MSK is signed with the current keys, from every source, and new keys are used without a restart.
func TestConnectionsToMSKAreSignedWithTheKeysOfTheMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	for name, c := range map[string]struct {
		settings string
		text     func(id string) string
		kept     bool
	}{
		"a file with JSON": {"OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_FILE=" + file, func(id string) string { return keysJSON(id, time.Time{}) }, false},
		"a credentials file": {"OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_FILE=" + file, func(id string) string {
			return "[other]\naws_access_key_id = x\n[default]\naws_access_key_id = " + id + "\naws_secret_access_key=s3cr3t-" + id + "/+=\n"
		}, false},
		"a command":              {"OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_COMMAND=cat " + file, func(id string) string { return keysJSON(id, time.Time{}) }, false},
		"a command with a time":  {"OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_COMMAND=cat " + file, func(id string) string { return keysJSON(id, time.Now().Add(time.Hour)) }, true},
		"a command, nearly over": {"OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_COMMAND=cat " + file, func(id string) string { return keysJSON(id, time.Now().Add(time.Second)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, file, c.text("FIRST"))
			m, err := mechanismOf(t, "OUTBOX_RELAY_KAFKA_SASL=aws-msk-iam", c.settings)
			require.NoError(t, err)
			require.Equal(t, "AWS_MSK_IAM", m.Name())
			if name == "a command, nearly over" { // such keys may have ended by now
				writeFile(t, file, c.text("SECOND"))
				require.Eventually(t, func() bool {
					writeFile(t, file, keysJSON("SECOND", time.Now().Add(time.Hour)))
					message, err := first(t, m, amazon+":9098")
					return err == nil && signed(t, message, "s3cr3t-SECOND/+=") == "SECOND"
				}, time.Minute, 10*time.Millisecond)
				return
			}
			message, err := first(t, m, amazon+":9098")
			require.NoError(t, err)
			require.Equal(t, "FIRST", signed(t, message, "s3cr3t-FIRST/+="))
			writeFile(t, file, c.text("SECOND"))
			message, err = first(t, m, amazon+":9098")
			require.NoError(t, err)
			want := "SECOND"
			if c.kept {
				want = "FIRST"
			}
			require.Equal(t, want, signed(t, message, "s3cr3t-"+want+"/+="))
		})
	}
}

func TestBrokenKeysForMSKHaveClearErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]string{
		"s3cr3t":                             "neither the JSON of AWS's credential_process nor a credentials file with the section [default]",
		"[default]\n":                        "AWS credentials without an access key id",
		`{"s3cr3t": `:                        "want the JSON of AWS's credential_process",
		`{"Version": 2}`:                     "has Version 2: want 1",
		`{"Version": 1, "AccessKeyId": "A"}`: "AWS credentials without a secret access key",
		`{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s3cr3t", "Expiration": "soon"}`: "Expiration: want a time",
		keysJSON("A", time.Now().Add(-time.Hour)):                                               "the AWS credentials expired at ",
	} {
		writeFile(t, file, text)
		m, err := mechanismOf(t, "OUTBOX_RELAY_KAFKA_SASL=aws-msk-iam", "OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_FILE="+file)
		require.NoError(t, err)
		_, err = first(t, m, amazon+":9098")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
	m, err := mechanismOf(t, "OUTBOX_RELAY_KAFKA_SASL=aws-msk-iam", "OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_COMMAND=sh -c 'echo no role >&2; exit 3'")
	require.NoError(t, err)
	_, err = first(t, m, amazon+":9098")
	require.ErrorContains(t, err, "kafka-aws-credentials-command (from OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS_COMMAND): command sh: exit status 3; its standard error: no role")
}

func TestKeysOfTheEnvironmentSignToo(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	_, err := mechanismOf(t, "OUTBOX_RELAY_KAFKA_SASL=aws-msk-iam")
	require.ErrorContains(t, err, "no AWS credentials: set AWS_ACCESS_KEY_ID")
	t.Setenv("AWS_ACCESS_KEY_ID", "OWN")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-OWN/+=")
	m, err := mechanismOf(t, "OUTBOX_RELAY_KAFKA_SASL=aws-msk-iam")
	require.NoError(t, err)
	message, err := first(t, m, amazon+":9098")
	require.NoError(t, err)
	require.Equal(t, "OWN", signed(t, message, "s3cr3t-OWN/+="))
}

// TestASecretThatCrossesTheNetworkUnencryptedIsReported: a token, and a signed login within minutes, let another program log in as a password does.
func TestASecretThatCrossesTheNetworkUnencryptedIsReported(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"none": "", "scram-sha-256": "", "scram-sha-512": "",
		"plain": "the password is sent unencrypted", "oauthbearer": "the token is sent unencrypted",
		"aws-msk-iam": "the signed login is sent unencrypted",
	} {
		for _, tls := range []string{"true", "false"} {
			settings := []string{
				"KAFKA_BROKERS=broker:9092", "OUTBOX_RELAY_KAFKA_SASL=" + kind, "OUTBOX_RELAY_KAFKA_TLS=" + tls, "OUTBOX_RELAY_KAFKA_USER=relay",
				"OUTBOX_RELAY_KAFKA_PASSWORD=s3cr3t", "OUTBOX_RELAY_KAFKA_TOKEN=s3cr3t",
				`OUTBOX_RELAY_KAFKA_AWS_CREDENTIALS={"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "s3cr3t"}`,
			}
			cmd := &cobra.Command{}
			DeclareServers(cmd)
			servers, err := Program{Environ: settings}.Servers(cmd)
			require.NoError(t, err, kind)
			if want == "" || tls == "true" {
				require.Empty(t, servers.InTheClear, kind)
			} else {
				require.Equal(t, "kafka-sasl "+kind+" without TLS: "+want, servers.InTheClear)
			}
		}
	}
}
