package console

import (
	"fmt"
	"slices"
)

// A Role limits the pages and actions of a user on one database. Each role includes the ones before it. The table of pages has the
// role of each page and of each action.
type Role int

const (
	// NoRole sees nothing of a database, not even its name.
	NoRole Role = iota
	// Viewer reads the pages that have no payloads and no variables of sagas.
	Viewer
	// Operator reads all pages, and does what the flow provides for: retry, redrive, resume, pause, resolve a step, compensate.
	Operator
	// Admin also does what loses data, enters data, or departs from the definition: discard, abandon, skip, set variables, edit a
	// payload, give up a held message, start a saga, move sagas to another definition.
	Admin
)

var roleNames = []string{"none", "viewer", "operator", "admin"}

// String returns the role's name in the configuration.
func (r Role) String() string {
	if r < 0 || int(r) >= len(roleNames) {
		return fmt.Sprintf("role %d", int(r))
	}
	return roleNames[r]
}

// MarshalText implements encoding.TextMarshaler.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. NoRole has no text: leave the database out instead.
func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roleNames, string(text))
	if i < int(Viewer) {
		return fmt.Errorf("role %q: want viewer, operator or admin", text)
	}
	*r = Role(i)
	return nil
}

// AllDatabases is the name of every database in Roles.
const AllDatabases = "*"

// Roles are a user's roles by the name of the database, or AllDatabases. A database that is named has the higher of both roles.
type Roles map[string]Role

func (r Roles) on(database string) Role { return max(r[AllDatabases], r[database]) }

// with returns the roles of both: for each database the higher one.
func (r Roles) with(other Roles) Roles {
	all := make(Roles, len(r)+len(other))
	for _, one := range []Roles{r, other} {
		for database, role := range one {
			all[database] = max(all[database], role)
		}
	}
	return all
}
