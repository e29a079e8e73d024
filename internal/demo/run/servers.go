package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
)

// removeLimit bounds the time to remove everything that a run has created.
const removeLimit = 30 * time.Second

// servers holds the servers of a run, started here or named by the user, and the names of everything that the run created there.
type servers struct {
	cfg      Config
	names    names
	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	registry *devstack.Registry
	client   *kgo.Client // for the run's own requests to the brokers
	made     []string    // databases
}

// openServers opens all three servers and creates a database for each service. After an error nothing is left; else call close.
func openServers(ctx context.Context, cfg Config, n names, dir string, log zerolog.Logger) (_ *servers, err error) {
	s := &servers{cfg: cfg, names: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	var pg devstack.PostgresConfig
	var broker devstack.KafkaConfig
	if cfg.Keep {
		pg, broker = keptDirs(dir)
	}
	pg.Log, broker.Log = log, log
	for _, server := range []struct {
		variable, value string
		open            func() error
	}{
		{"TROUPE_POSTGRES", cfg.Postgres, func() (err error) { s.postgres, err = devstack.OpenPostgres(ctx, pg); return err }},
		{"TROUPE_KAFKA", cfg.Kafka, func() (err error) { s.kafka, err = devstack.OpenKafka(ctx, broker); return err }},
		{"TROUPE_REGISTRY", cfg.Registry, func() (err error) { s.registry, err = devstack.OpenRegistry(ctx); return err }},
	} {
		// A flag sets the variable, which devstack reads, and so takes precedence over it.
		if err := os.Setenv(server.variable, server.value); err != nil {
			return nil, err
		}
		if err := server.open(); err != nil {
			return nil, err
		}
	}
	if s.client, err = kafka.NewClient(s.kafka.Addrs()); err != nil {
		return nil, err
	}
	for _, service := range services {
		if _, err := s.postgres.CreateDatabase(ctx, n.database(service), ""); err != nil {
			return nil, err
		}
		s.made = append(s.made, n.database(service))
	}
	return s, nil
}

// databaseURLs returns the URLs by service.
func (s *servers) databaseURLs() map[string]string {
	urls := make(map[string]string, len(services))
	for _, service := range services {
		urls[service] = s.postgres.URL(s.names.database(service))
	}
	return urls
}

// close removes everything that the run created, unless it is to be kept, and stops the servers that were started here. On a
// server that stops with the run nothing needs to be removed.
func (s *servers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	var errs []error
	if s.registry != nil {
		errs = append(errs, s.registry.Close())
	}
	if s.client != nil {
		if s.cfg.Kafka != "" && !s.cfg.Keep {
			errs = append(errs, removeFlow(ctx, s.client, s.names.flow()))
		}
		s.client.Close()
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		if s.cfg.Postgres != "" && !s.cfg.Keep {
			for _, name := range s.made {
				errs = append(errs, s.postgres.DropDatabase(ctx, name))
			}
		}
		errs = append(errs, s.postgres.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
