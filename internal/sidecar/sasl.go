package sidecar

import (
	"context"
	"crypto/tls"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var mechanisms = []string{"none", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws-msk-iam"}

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

// sasl returns nil if no authentication is configured. A secret's file is read, or its command run, for each connection.
func (v values) sasl() (sasl.Mechanism, error) {
	kind, err := v.oneOf(kafkaSASL)
	if err != nil || kind == "none" {
		return nil, err
	}
	switch kind {
	case "oauthbearer":
		return v.oauthbearer()
	case "aws-msk-iam":
		return v.mskIAM()
	}
	user := v.text[kafkaUser.name]
	if user == "" {
		return nil, v.required(kafkaUser, "a name, since kafka-sasl is "+kind)
	}
	if !v.has(kafkaPassword) {
		return nil, v.required(kafkaPassword, "a password, since kafka-sasl is "+kind)
	}
	now := v.now(kafkaPassword)
	if kind == "plain" {
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := now(ctx)
			return plain.Auth{User: user, Pass: password}, err
		}), nil
	}
	auth := func(ctx context.Context) (scram.Auth, error) {
		password, err := now(ctx)
		return scram.Auth{User: user, Pass: password}, err
	}
	if kind == "scram-sha-256" {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}

// reusable names, by SASL mechanism, the credential with which a program that reads the network could log in.
var reusable = map[string]string{"plain": "password", "oauthbearer": "token", "aws-msk-iam": "signed login"}

// inTheClear describes the secret that would cross the network unencrypted; "": none would.
func (v values) inTheClear() string {
	kind := v.text[kafkaSASL.name]
	if reusable[kind] == "" || v.text[kafkaTLS.name] == "true" || v.text[kafkaCA.name]+v.text[kafkaCert.name]+v.text[kafkaName.name] != "" {
		return ""
	}
	return "kafka-sasl " + kind + " without TLS: the " + reusable[kind] + " is sent unencrypted"
}
