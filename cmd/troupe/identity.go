package main

import (
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/sidecar"
)

// identify sets TLS and the password of a database's connections from TROUPE_DATABASE_….
func identify(config *pgxpool.Config) error {
	i, err := (sidecar.Program{Environ: os.Environ()}).Identity()
	if err != nil {
		return err
	}
	return i.Database(config)
}

// kafkaIdentity returns TLS and authentication of the clients of Kafka from TROUPE_KAFKA_….
func kafkaIdentity() ([]kgo.Opt, error) {
	i, err := (sidecar.Program{Environ: os.Environ()}).Identity()
	if err != nil {
		return nil, err
	}
	return i.Kafka()
}
