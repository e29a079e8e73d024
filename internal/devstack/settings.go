package devstack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hba requires the password over TCP: on a machine with several users, the port is open to all of them. The socket's folder is
// open to the server's account only.
const hba = `local all         all              trust
local replication all              trust
host  all         all 127.0.0.1/32 scram-sha-256
host  replication all 127.0.0.1/32 scram-sha-256
`

// configure writes the server's configuration files at each start, so that an existing data folder gets the settings of this
// start.
func (s *server) configure() error {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.sockets,
		"unix_socket_permissions": "0700",
		"wal_level":               "logical",
		"max_connections":         "300",
		"max_wal_senders":         "30",
		"max_replication_slots":   "30",
		"shared_buffers":          "128MB",
		"max_wal_size":            "1GB",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"log_line_prefix":         "%m [%p] %d ",
	}
	maps.Copy(settings, s.settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		_, _ = fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	for name, text := range map[string]string{"postgresql.conf": conf.String(), "pg_hba.conf": hba} {
		if err := os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
