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

// MaxEntries limits the entries of one Timeline, and MaxBytes their texts and payloads.
const (
	MaxEntries = 10_000
	MaxBytes   = 16 << 20
)

// A Database is the database of one service.
type Database struct {
	Name string // the name that is printed: the service's
	Pool *pgxpool.Pool
}

// Config configures the sources. Databases are required, or Brokers with a Flow or Topics.
type Config struct {
	Databases []Database
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Flow is the first part of the topics' names: all topics and groups of the flow are read.
	Flow string
	// Topics lists further topics to read.
	Topics []string
	// Groups lists further groups, since the group of a participant may have a name that does not begin with Flow.
	Groups []string
	// Registry has the schemas of Avro payloads. Nil: such payloads are not shown.
	Registry *schemas.Registry

	// Since sets how far back topics are read, by the time of the records. Default: 24 h.
	Since time.Duration
	// ScanAll reads all partitions, not only those to which the key belongs now.
	ScanAll bool
	// MaxRecords limits how many records are read. Default: 1,000,000. If the subject is the id of a single message, Read makes a
	// second pass with the same limit.
	MaxRecords int64
	// Timeout limits the reading of one database, each query to the brokers, and a pause in which no record arrives. Default: 10
	// s.
	Timeout time.Duration
	// Progress is called every second, by the goroutine of Read, with the numbers of records that were read and that are to be
	// read. May be nil.
	Progress func(read, of int64)
	// Kafka options are applied after this package's own, so they override them.
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

// checkSubject refuses a text that neither a header nor a column can hold.
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
