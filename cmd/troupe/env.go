package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/troupe-go/troupe/internal/address"
)

// The commands read the databases from the variable of a service (DATABASE_URL) or of a flow (TROUPE_DATABASES). Either is enough.

// namedDatabases returns the databases of the environment as name=URL: from TROUPE_DATABASES, else DATABASE_URL under the name of
// its database.
func namedDatabases() []string {
	if all := strings.Fields(os.Getenv("TROUPE_DATABASES")); len(all) > 0 {
		return all
	}
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		return nil
	}
	name := "service"
	if config, err := address.ParsePool(url); err == nil && !strings.ContainsAny(config.ConnConfig.Database, ":/@= ") && config.ConnConfig.Database != "" {
		name = config.ConnConfig.Database
	}
	return []string{name + "=" + url}
}

// databaseURL returns the URL of one service's database: the given one, or, if that is a name, the database of TROUPE_DATABASES with
// this name; without either DATABASE_URL, or the only database of TROUPE_DATABASES. Errors do not repeat a URL, which may contain a
// password.
func databaseURL(given string) (string, error) {
	var names []string
	urls := make(map[string]string)
	for _, text := range strings.Fields(os.Getenv("TROUPE_DATABASES")) {
		if name, url, ok := strings.Cut(text, "="); ok {
			names, urls[name] = append(names, name), url
		}
	}
	switch url := os.Getenv("DATABASE_URL"); {
	case urls[given] != "":
		return urls[given], nil
	case given != "":
		return given, nil
	case url != "":
		return url, nil
	case len(names) == 1:
		return urls[names[0]], nil
	case len(names) > 1:
		return "", fmt.Errorf("--database-url is not set: TROUPE_DATABASES has %s: name one of them, as --database-url %s", strings.Join(names, ", "), names[0])
	}
	return "", errors.New("--database-url is not set: want postgres://user@host:5432/database of the service; set it, or DATABASE_URL")
}
