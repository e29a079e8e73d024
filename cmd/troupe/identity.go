package main

import (
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/sidecar"
)

// identify sets TLS, and the password of connections to a database, from the variables TROUPE_DATABASE_….
func identify(config *pgxpool.Config) error {
	i, err := (sidecar.Program{Environ: os.Environ()}).Identity()
	if err != nil {
		return err
	}
	return i.Database(config)
}

// kafkaIdentity returns the options of Kafka clients for TLS and authentication, from the variables TROUPE_KAFKA_….
func kafkaIdentity() ([]kgo.Opt, error) {
	i, err := (sidecar.Program{Environ: os.Environ()}).Identity()
	if err != nil {
		return nil, err
	}
	return i.Kafka()
}
