package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AWS has the keys that sign requests to services of AWS.
type AWS struct {
	AccessKey, SecretKey, SessionToken string
	Expires                            time.Time // zero: never
}

// ErrNoAWS reports that the environment contains no keys.
var ErrNoAWS = errors.New("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or kafka-aws-credentials-file, or kafka-aws-credentials-command, " +
	"such as `aws configure export-credentials --format process`")

// AWSOfEnvironment returns the keys of the variables that AWS's own tools read.
func AWSOfEnvironment(get func(name string) string) (AWS, error) {
	c := AWS{AccessKey: get("AWS_ACCESS_KEY_ID"), SecretKey: get("AWS_SECRET_ACCESS_KEY"), SessionToken: get("AWS_SESSION_TOKEN")}
	if c.AccessKey == "" && c.SecretKey == "" {
		return c, ErrNoAWS
	}
	return c, c.check()
}

// ParseAWS reads keys from the JSON of AWS's credential_process, or from the section of profile in the text of a credentials
// file. An empty profile is the profile default. No error contains any part of the text.
func ParseAWS(text, profile string) (AWS, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return profileAWS(text, profile)
	}
	var c struct {
		Version                                   int
		AccessKeyID                               string `json:"AccessKeyId"`
		SecretAccessKey, SessionToken, Expiration string
	}
	if json.Unmarshal([]byte(text), &c) != nil {
		return AWS{}, errors.New("want the JSON of AWS's credential_process (the text is not shown)")
	}
	if c.Version != 1 {
		return AWS{}, fmt.Errorf("the JSON of AWS's credential_process has Version %d: want 1", c.Version)
	}
	keys := AWS{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}
	if c.Expiration != "" {
		var err error
		if keys.Expires, err = time.Parse(time.RFC3339, c.Expiration); err != nil {
			return AWS{}, errors.New("Expiration: want a time such as 2026-01-31T12:00:00Z") //nolint:staticcheck // the name of the field
		}
	}
	return keys, keys.check()
}

func profileAWS(text, profile string) (AWS, error) {
	if profile == "" {
		profile = "default"
	}
	var keys AWS
	section := ""
	found := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "["); is {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			found = found || section == profile
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		if section != profile {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "aws_access_key_id":
			keys.AccessKey = value
		case "aws_secret_access_key":
			keys.SecretKey = value
		case "aws_session_token":
			keys.SessionToken = value
		}
	}
	if !found {
		return keys, errors.New("neither the JSON of AWS's credential_process nor a credentials file with the section [" + profile + "]")
	}
	return keys, keys.check()
}

func (c AWS) check() error {
	switch {
	case c.AccessKey == "":
		return errors.New("AWS credentials without an access key id")
	case c.SecretKey == "":
		return errors.New("AWS credentials without a secret access key")
	}
	return nil
}

const (
	awsEarly    = 5 * time.Minute // how long before keys expire new ones are fetched
	awsEarlyMax = 5               // keys are kept for at least four fifths of their lifetime: 1 - 1/awsEarlyMax
)

// NewAWS returns keys that are fetched when they are needed, and again before they expire. Keys without an expiry time are
// fetched for each call of Get.
func NewAWS(fetch func(context.Context) (AWS, error), now func() time.Time) *Shared[AWS] {
	return &Shared[AWS]{
		Now: now,
		Fetch: func(ctx context.Context) (AWS, error) {
			keys, err := fetch(ctx)
			if err == nil && !keys.Expires.IsZero() && !now().Before(keys.Expires) {
				err = fmt.Errorf("the AWS credentials expired at %s, and it is %s here: the command or file gives old credentials, or this machine's clock is ahead",
					keys.Expires.UTC().Format(time.DateTime+"Z"), now().UTC().Format(time.DateTime+"Z"))
			}
			return keys, err
		},
		Lasts: func(keys AWS) (refresh, end time.Time) {
			if keys.Expires.IsZero() {
				return keys.Expires, keys.Expires
			}
			early := min(awsEarly, keys.Expires.Sub(now())/awsEarlyMax)
			return keys.Expires.Add(-early), keys.Expires
		},
	}
}
