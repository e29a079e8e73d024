package sidecar

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var mechanisms = []string{"none", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"}

// kafka returns the client's options for TLS and authentication.
func (v values) kafka() ([]kgo.Opt, error) {
	encrypted, err := v.oneOf(kafkaTLS)
	if err != nil {
		return nil, err
	}
	config, err := v.tls(toKafka)
	if err != nil {
		return nil, err
	}
	if encrypted == "true" && config == nil {
		config = &encryption{config: &tls.Config{MinVersion: tls.VersionTLS12}}
	}
	var opts []kgo.Opt
	if config != nil {
		opts = append(opts, kgo.Dialer(config.dial))
	}
	mechanism, err := v.sasl()
	if err != nil || mechanism == nil {
		return opts, err
	}
	return append(opts, kgo.SASL(mechanism)), nil
}

// sasl returns nil if no authentication is configured. It reads a secret's file for each connection, since tokens are
// short-lived.
func (v values) sasl() (sasl.Mechanism, error) {
	kind, err := v.oneOf(kafkaSASL)
	if err != nil || kind == "none" {
		return nil, err
	}
	if kind == "oauthbearer" {
		if v.text[kafkaToken.name] == "" {
			return nil, v.required(kafkaToken, "a token, since kafka-sasl is "+kind)
		}
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := v.fresh(kafkaToken)
			return oauth.Auth{Token: token}, err
		}), nil
	}
	user := v.text[kafkaUser.name]
	if user == "" {
		return nil, v.required(kafkaUser, "a name, since kafka-sasl is "+kind)
	}
	if v.text[kafkaPassword.name] == "" {
		return nil, v.required(kafkaPassword, "a password, since kafka-sasl is "+kind)
	}
	if kind == "plain" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := v.fresh(kafkaPassword)
			return plain.Auth{User: user, Pass: password}, err
		}), nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		password, err := v.fresh(kafkaPassword)
		return scram.Auth{User: user, Pass: password}, err
	}
	if kind == "scram-sha-256" {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}

// fresh returns a secret, read from its file now if it has one.
func (v values) fresh(s setting) (string, error) {
	path, filed := v.path[s.name]
	if !filed {
		return v.text[s.name], nil
	}
	secret, err := readSecret(path)
	if err != nil {
		return "", errors.Join(errors.New(s.fileName()), err)
	}
	return secret, nil
}

// inTheClear reports whether a password would cross the network unencrypted.
func (v values) inTheClear() bool {
	return v.text[kafkaSASL.name] == "plain" && v.text[kafkaTLS.name] != "true" &&
		v.text[kafkaCA.name]+v.text[kafkaCert.name]+v.text[kafkaName.name] == ""
}
