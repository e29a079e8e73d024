package timeline

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// MaxEntries is the most that one Timeline holds.
const MaxEntries = 10_000

// A Database is one service's.
type Database struct {
	Name string // as it is called in what is printed: the service's
	Pool *pgxpool.Pool
}

// Config says where to look. There must be Databases, or Brokers with a Flow or Topics.
type Config struct {
	Databases []Database
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Flow is the first part of the topics' names: all topics and groups of the flow are looked at.
	Flow string
	// Topics to look at beside those of Flow.
	Topics []string
	// Groups to look at beside those whose names begin with Flow: participants may have one of another name.
	Groups []string
	// Registry has the schemas of Avro payloads. Nil: such payloads are not shown.
	Registry *schemas.Registry

	// Since is how far to look back, by the time of the records. Default 24 h.
	Since time.Duration
	// ScanAll reads all partitions, not only those where the key belongs now.
	ScanAll bool
	// MaxRecords is how many records are read in all. Default 1,000,000.
	MaxRecords int64
	// Timeout of what is asked of one database, of each question to the brokers, and of a pause in which no record
	// comes. Default 10 s.
	Timeout time.Duration
	// Progress is told every second, by the goroutine of Read, how many records were read and how many there are.
	// May be nil.
	Progress func(read, of int64)
	// Kafka options come after this package's own, so they win.
	Kafka []kgo.Opt
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.Databases) == 0 && len(c.Brokers) == 0:
		return c, errors.New("neither a database nor brokers to look at")
	case len(c.Brokers) > 0 && c.Flow == "" && len(c.Topics) == 0:
		return c, errors.New("brokers without a flow or topics to look at")
	case len(c.Brokers) == 0 && (len(c.Topics) > 0 || len(c.Groups) > 0):
		return c, errors.New("topics or groups without brokers")
	case c.Since < 0 || c.Timeout < 0 || c.MaxRecords < 0:
		return c, fmt.Errorf("since %s, timeout %s, %d records: want none below zero", c.Since, c.Timeout, c.MaxRecords)
	}
	if c.Flow != "" {
		if _, err := topics.NewHop(c.Flow, "hop"); err != nil {
			return c, err
		}
	}
	for i, d := range c.Databases {
		if d.Name == "" || d.Pool == nil {
			return c, fmt.Errorf("database %d without a name or a pool", i)
		}
	}
	fill(&c.Since, 24*time.Hour)
	fill(&c.MaxRecords, 1_000_000)
	fill(&c.Timeout, 10*time.Second)
	return c, nil
}

func fill[T comparable](field *T, with T) {
	var zero T
	if *field == zero {
		*field = with
	}
}

// checkSubject refuses what neither a header nor a column can hold.
func checkSubject(s string) error {
	switch {
	case s == "":
		return errors.New("an empty key or id")
	case len(s) > 1024:
		return fmt.Errorf("a key or id of %d bytes: want at most 1024", len(s))
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return errors.New("a key or id that is no text")
	}
	return nil
}
