package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
)

// removeLimit is how long it may take to remove what a run has made.
const removeLimit = 30 * time.Second

// servers are what a run works on, started here or named by the user, and what it made there.
type servers struct {
	cfg      Config
	names    names
	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	registry *devstack.Registry
	client   *kgo.Client // for what the run itself asks of the brokers
	made     []string    // databases
}

// openServers opens all three and makes a database per service. On an error nothing is left; else close them.
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
		// A flag is the same setting as the variable, which devstack reads, and wins over it.
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

// databaseURLs are by service.
func (s *servers) databaseURLs() map[string]string {
	urls := make(map[string]string, len(services))
	for _, service := range services {
		urls[service] = s.postgres.URL(s.names.database(service))
	}
	return urls
}

// close removes what the run made, unless it is to be kept, and ends what was started here. A server that ends with the
// run needs nothing removed.
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
