package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/plain"
)

// Access names the users of a console, with their roles. The actor in the records is the user's name, and no request can give
// another one. Reading needs a user, too.
type Access struct {
	// Users have a token of their own each, or are named by the Proxy, or both.
	Users []User
	// Groups are roles by the name of a group. Only the Proxy says which groups a user is in. A user has the highest role of each
	// database that the user or one of the groups has.
	Groups map[string]Roles
	// Proxy is an authenticating proxy in front of the console. Nil: users have tokens.
	Proxy *Proxy
}

// A User has a name, for the records, and roles.
type User struct {
	Name string
	// Token has at least 16 bytes and differs from the tokens of other users. "": only the Proxy can name this user.
	Token string
	Roles Roles
}

// A Proxy authenticates users and names them in a header. The console believes the header only in a request that comes from the
// proxy: from an address in From, if that is set, and with the header Troupe-Proxy-Secret, if Secret is set. At least one of both
// is required; set Secret if other programs can send requests from the same address. The proxy must remove all three headers from
// requests of its clients.
type Proxy struct {
	From   []netip.Prefix
	Secret string // at least 16 bytes
	// User is the header with the user's name, such as X-Forwarded-User.
	User string
	// Groups is the header with the names of the user's groups, separated by commas. "": there is none.
	Groups string
}

func (a *Access) validate(databases []string) error {
	var names, tokens []string
	check := func(of string, roles Roles) error {
		for database, role := range roles {
			if database != AllDatabases && !slices.Contains(databases, database) {
				return fmt.Errorf("%s: there is no database %s: want one of %s, or %q for all", of, database, strings.Join(databases, ", "), AllDatabases)
			}
			if role < Viewer || role > Admin {
				return fmt.Errorf("%s: database %s: want the role viewer, operator or admin", of, database)
			}
		}
		return nil
	}
	for _, u := range a.Users {
		switch {
		case admin.Actor{Name: u.Name}.Check() != nil || u.Name != strings.TrimSpace(u.Name):
			return fmt.Errorf("user %s: want a name of one line, of at most %d bytes", plain.Line(u.Name, 40), admin.MaxName)
		case slices.Contains(names, u.Name):
			return fmt.Errorf("two users are called %s", u.Name)
		case u.Token == "" && a.Proxy == nil:
			return fmt.Errorf("user %s has no token, and there is no proxy that could name the user", u.Name)
		case u.Token != "" && len(u.Token) < leastToken:
			return fmt.Errorf("user %s: a token of %d bytes: want at least %d", u.Name, len(u.Token), leastToken)
		case u.Token != "" && slices.Contains(tokens, u.Token):
			return fmt.Errorf("user %s has the token of another user", u.Name)
		case len(u.Roles) == 0:
			return fmt.Errorf("user %s has no role", u.Name)
		}
		if err := check("user "+u.Name, u.Roles); err != nil {
			return err
		}
		names, tokens = append(names, u.Name), append(tokens, u.Token)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Groups)) {
		if err := check("group "+name, a.Groups[name]); err != nil {
			return err
		}
	}
	switch p := a.Proxy; {
	case p == nil && len(a.Users) == 0:
		return errors.New("access without users and without a proxy: no request could read")
	case p == nil && len(a.Groups) > 0:
		return errors.New("groups without a proxy that names the groups of a user")
	case p == nil:
	case p.User == "":
		return errors.New("a proxy without the name of its header for the user")
	case len(p.From) == 0 && p.Secret == "":
		return errors.New("a proxy without addresses and without a secret: every client could name itself")
	case p.Secret != "" && len(p.Secret) < leastToken:
		return fmt.Errorf("a proxy's secret of %d bytes: want at least %d", len(p.Secret), leastToken)
	case len(a.Groups) > 0 && p.Groups == "":
		return errors.New("groups without the name of the proxy's header for groups")
	}
	return nil
}

// accounts finds the user of a token, or of a request of the proxy.
type accounts struct {
	tokens map[[sha256.Size]byte]user // by hash, so that the time of a search depends on no part of a token
	roles  map[string]Roles           // of the users that the proxy may name
	groups map[string]Roles
	proxy  *door.Proxy // nil: none
	header Proxy
	key    []byte // of the values that forms of the proxy's users must have
}

func newAccounts(cfg Config) *accounts {
	a := &accounts{tokens: make(map[[sha256.Size]byte]user), roles: make(map[string]Roles), key: []byte(rand.Text())}
	if cfg.Token != "" {
		a.tokens[sha256.Sum256([]byte(cfg.Token))] = user{name: "the token", roles: Roles{AllDatabases: Admin}, shared: true}
	}
	if cfg.Access == nil {
		return a
	}
	a.groups = cfg.Access.Groups
	for _, u := range cfg.Access.Users {
		a.roles[u.Name] = u.Roles
		if u.Token != "" {
			a.tokens[sha256.Sum256([]byte(u.Token))] = user{name: u.Name, roles: u.Roles}
		}
	}
	if p := cfg.Access.Proxy; p != nil {
		a.header, a.proxy = *p, &door.Proxy{From: p.From}
		a.proxy.Secret.Set(p.Secret)
	}
	return a
}

// ReplaceAccess replaces the token, or the users with their tokens and roles and the proxy, while the console serves. A console with a token
// stays one with a token, and a console with users one with users. The sessions that a removed token began end; the others get the roles
// that their user has now. After an error the earlier access holds.
func (c *Console) ReplaceAccess(token string, access *Access) error {
	cfg := c.cfg
	switch {
	case (token != "") != (cfg.Token != "") || (access != nil) != (cfg.Access != nil):
		return errors.New("console: a token for all cannot become users with roles, or the reverse, without a restart")
	case access != nil && (access.Proxy != nil) != (cfg.Access.Proxy != nil):
		return errors.New("console: a proxy cannot be added or removed without a restart")
	}
	cfg.Token, cfg.Access = token, access
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	a := newAccounts(cfg)
	a.key = c.accounts.Load().key
	c.accounts.Store(a)
	c.sessions.keep(a)
	return nil
}

// ofToken returns the user of a token; false if it is no user's.
func (a *accounts) ofToken(token string) (user, bool) {
	u, is := a.tokens[sha256.Sum256([]byte(token))]
	return u, is
}

// proxied returns the user that the proxy names; false if it names none, or another client sent the header. One of both
// headers that is there twice names none: one of the two may be the client's.
func (a *accounts) proxied(r *http.Request) (u user, is bool) {
	if a.proxy == nil {
		return user{}, false
	}
	values := r.Header.Values(a.header.User)
	if len(values) != 1 || !a.proxy.Sent(r) {
		return user{}, false
	}
	name := strings.TrimSpace(values[0])
	if (admin.Actor{Name: name}).Check() != nil {
		return user{}, false
	}
	roles := a.roles[name]
	if a.header.Groups != "" {
		groups := r.Header.Values(a.header.Groups)
		if len(groups) > 1 {
			return user{}, false
		}
		for _, one := range groups {
			for group := range strings.SplitSeq(one, ",") {
				roles = roles.with(a.groups[strings.TrimSpace(group)])
			}
		}
	}
	sum := hmac.New(sha256.New, a.key)
	sum.Write([]byte(name))
	return user{name: name, roles: roles, form: hex.EncodeToString(sum.Sum(nil)), proxied: true}, true
}
