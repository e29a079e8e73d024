package sidecar

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/troupe-go/troupe/internal/credentials"
	"github.com/troupe-go/troupe/internal/credentials/oidc"
)

// oauthbearer returns the mechanism with the token of the settings, or with tokens that it requests from an identity provider.
func (v values) oauthbearer() (sasl.Mechanism, error) {
	extensions, err := v.extensions()
	if err != nil {
		return nil, err
	}
	var now func(context.Context) (string, error)
	switch url := v.text[kafkaTokenURL.name]; {
	case url != "" && v.has(kafkaToken):
		return nil, usagef("%s (from %s) and %s (from %s): set one of them", kafkaToken.name, v.from[kafkaToken.name], kafkaTokenURL.name, v.from[kafkaTokenURL.name])
	case url != "":
		provider, err := v.provider(url)
		if err != nil {
			return nil, err
		}
		now = provider.Token
	case v.has(kafkaToken):
		now = v.now(kafkaToken)
	default:
		return nil, v.required(kafkaToken, "a token, or a token endpoint by "+kafkaTokenURL.name+", since kafka-sasl is oauthbearer")
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := now(ctx)
		return oauth.Auth{Token: token, Extensions: extensions}, err
	}), nil
}

func (v values) provider(url string) (*oidc.Source, error) {
	if v.text[kafkaClientID.name] == "" {
		return nil, v.required(kafkaClientID, "the id of a client, since "+kafkaTokenURL.name+" is set")
	}
	if !v.has(kafkaClientSecret) {
		return nil, v.required(kafkaClientSecret, "the client's secret, since "+kafkaTokenURL.name+" is set")
	}
	encrypted, err := v.tls(identity{ca: kafkaTokenCA})
	if err != nil {
		return nil, err
	}
	cfg := oidc.Config{
		URL: url, ClientID: v.text[kafkaClientID.name], Secret: v.now(kafkaClientSecret), Audience: v.text[kafkaAudience.name],
		Scopes: strings.FieldsFunc(v.text[kafkaScope.name], func(c rune) bool { return c == ',' || c == ' ' }),
	}
	if encrypted != nil {
		cfg.TLS = encrypted.to
	}
	source, err := oidc.New(cfg)
	if err != nil {
		return nil, usagef("%s (from %s): %w", kafkaTokenURL.name, v.from[kafkaTokenURL.name], err)
	}
	return source, nil
}

func (v values) extensions() (map[string]string, error) {
	all := make(map[string]string)
	for part := range strings.SplitSeq(v.text[kafkaExtensions.name], ",") {
		name, value, is := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case part == "" && v.text[kafkaExtensions.name] == "":
		case !is || name == "" || name == "auth" || strings.ContainsAny(part, "\x01\r\n"):
			return nil, v.bad(kafkaExtensions, "name=value of one or more extensions, separated by commas")
		default:
			all[name] = value
		}
	}
	return all, nil
}

// mskIAM returns the mechanism that signs each connection with AWS credentials of the settings, else of the environment.
func (v values) mskIAM() (sasl.Mechanism, error) {
	fetch := func(context.Context) (credentials.AWS, error) { return credentials.AWSOfEnvironment(os.Getenv) }
	if command, printed := v.command[kafkaAWS.name]; printed {
		fetch = func(ctx context.Context) (credentials.AWS, error) { return v.awsOf(command.Run(ctx)) }
	} else if path, filed := v.path[kafkaAWS.name]; filed {
		fetch = func(context.Context) (credentials.AWS, error) { return v.awsOf(credentials.ReadFile(path)) }
	} else if text := v.text[kafkaAWS.name]; text != "" {
		fetch = func(context.Context) (credentials.AWS, error) { return v.awsOf(text, nil) }
	} else if _, err := fetch(context.Background()); err != nil { // checked once: the environment of a process does not change
		return nil, usagef("%s is %s: %w", kafkaSASL.name, v.text[kafkaSASL.name], err)
	}
	shared := credentials.NewAWS(fetch, time.Now)
	return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
		keys, err := shared.Get(ctx)
		return aws.Auth{AccessKey: keys.AccessKey, SecretKey: keys.SecretKey, SessionToken: keys.SessionToken}, err
	}), nil
}

func (v values) awsOf(text string, err error) (keys credentials.AWS, _ error) {
	if err == nil {
		keys, err = credentials.ParseAWS(text, os.Getenv("AWS_PROFILE"))
	}
	return keys, v.broken(kafkaAWS, err)
}
