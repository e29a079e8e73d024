package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/troupe-go/troupe/internal/devstack"
)

// keptFile is the name of the file that a run with Config.Keep writes into its folder.
const keptFile = "kept.json"

// kept is the content of the file.
type kept struct {
	Flow      string            `json:"flow"`
	Databases map[string]string `json:"databases"` // names by service
}

func (r *run) writeKept() error {
	k := kept{Flow: r.names.flow(), Databases: make(map[string]string)}
	for _, service := range services {
		k.Databases[service] = r.names.database(service)
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, keptFile), text, 0o600)
}

// Kept gives access to the databases and topics of a run with Config.Keep, on its servers: the ones that TROUPE_POSTGRES and
// TROUPE_KAFKA name, else the ones that the run had started, which run again until Close.
type Kept struct {
	Flow      string
	Brokers   []string
	Databases map[string]string // URLs by service

	postgres *devstack.Postgres
	kafka    *devstack.Kafka
}

// OpenKept opens the servers of the run whose Result.Folder is folder.
func OpenKept(ctx context.Context, folder string) (_ *Kept, err error) {
	text, err := os.ReadFile(filepath.Join(folder, keptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: not the folder of a demo with --keep: it has no %s", folder, keptFile)
	}
	if err != nil {
		return nil, err
	}
	var file kept
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, keptFile), err)
	}
	k := &Kept{Flow: file.Flow, Databases: make(map[string]string)}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	pg, broker := keptDirs(folder)
	for _, server := range []struct{ variable, dir string }{{"TROUPE_POSTGRES", pg.Dir}, {"TROUPE_KAFKA", broker.DataDir}} {
		if _, err := os.Stat(server.dir); err != nil && os.Getenv(server.variable) == "" {
			return nil, fmt.Errorf("%s: the demo ran on a server of yours: %s must name it", folder, server.variable)
		}
	}
	if k.postgres, err = devstack.OpenPostgres(ctx, pg); err != nil {
		return nil, err
	}
	if k.kafka, err = devstack.OpenKafka(ctx, broker); err != nil {
		return nil, err
	}
	k.Brokers = k.kafka.Addrs()
	for service, name := range file.Databases {
		k.Databases[service] = k.postgres.URL(name)
	}
	return k, nil
}

// keptDirs returns where servers that a run starts keep their data.
func keptDirs(folder string) (devstack.PostgresConfig, devstack.KafkaConfig) {
	return devstack.PostgresConfig{Dir: filepath.Join(folder, "postgres")}, devstack.KafkaConfig{DataDir: filepath.Join(folder, "kafka")}
}

// Close stops the servers that OpenKept started; their data stays.
func (k *Kept) Close() error {
	var errs []error
	if k.kafka != nil {
		errs = append(errs, k.kafka.Close())
	}
	if k.postgres != nil {
		errs = append(errs, k.postgres.Close())
	}
	return errors.Join(errs...)
}
