package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// A sample is a snapshot of the database, with an LSN after every commit that is visible in it. Once the stream has passed that LSN, all
// rows that are visible in the snapshot are published or recorded.
//
// Each sample also commits an empty message to the log. When the stream delivers this message, it has passed the sample's LSN. On an idle
// outbox the message lets the slot advance. If the relay dies after it, only the message is left in the log.
type sample struct {
	snapshot    string
	lsn         wal.LSN
	publication string // as sample.sql identifies it
	rows        int64  // value of stream.rows before the sample was taken
	at          time.Time
}

// errAltered means that the publication does not publish every row of the table, or is not the publication that the slot's stored
// checkpoint belongs to: it is another one, or was altered since. Then the log may lack rows that were inserted meanwhile.
var errAltered = errors.New("the publication was altered, and may not have published every row")

// sample reads a snapshot and an LSN as Relay.sample does, and adds the number of rows that the stream had settled before. It returns
// errAltered if the publication has changed since the stream began: the log may then lack rows that the snapshot sees.
func (s *stream) sample(ctx context.Context) (sample, error) {
	rows := s.rows.Load()
	got, err := s.relay.sample(ctx, s.db)
	got.rows, got.at = rows, time.Now()
	if err == nil && got.publication != s.publication {
		err = errAltered
	}
	return got, err
}

// checkPublication returns errAltered if the publication was altered after the stream began. The goroutine of stream.read calls it for each
// description of the table in the log. The server sends such a description before the first row after a change of the publication. So if
// the log lacks rows, the stream ends before it delivers a later row.
func (s *stream) checkPublication() error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	_, err := s.sample(ctx)
	return err
}

// sample takes a sample on the server db. It returns errAltered if the publication does not publish every row of the table, or if
// another table has the table's name, and mapping.ErrInherits if a table inherits from a mapped table.
func (r *Relay) sample(ctx context.Context, db *server) (got sample, err error) {
	var relation int64 // 0: troupe.outbox
	var table *string
	if r.mapped != nil {
		name := r.mapped.identifier()
		relation, table = int64(r.mapped.oid), &name
	}
	var lsn string
	var publication *string
	var beat bool
	err = db.QueryRow(ctx, takeSample, pg.Args{"relation": relation, "table": table, "publication": r.cfg.Publication}).
		Scan(&got.snapshot, &lsn, &beat, &publication)
	if err != nil {
		return got, fmt.Errorf("take a sample: %w", err)
	}
	if publication == nil {
		return got, errAltered
	}
	if r.mapped != nil { // a child's rows are in the log under the child's name, or not at all
		var inherits bool
		if err := db.QueryRow(ctx, mapping.InheritsSQL, r.mapped.identifier()).Scan(&inherits); err != nil {
			return got, fmt.Errorf("look for tables that inherit from table %s: %w", r.mapped, err)
		}
		if inherits {
			return got, fmt.Errorf("table %s: %w", r.mapped, mapping.ErrInherits)
		}
	}
	got.publication = *publication
	got.lsn, err = wal.ParseLSN(lsn)
	return got, err
}

// altered compares the publication with the one that the stored checkpoint belongs to. If it is another one, or was altered since, the slot
// cannot be streamed from that checkpoint. For troupe.outbox altered then returns the reason, and the caller creates a new slot and reads
// the rows that the log does not have from the table. The rows of a mapped table may be in the log alone. So for such a table altered
// returns an error, and an operator decides.
func (r *Relay) altered(st storedState, publication string) (why string, err error) {
	switch {
	case st.publication == nil || *st.publication == publication:
		return "", nil
	case r.mapped == nil:
		return errAltered.Error(), nil
	}
	return "", fmt.Errorf("%w: drop slot %s, and the relay publishes the rows that table %s holds; rows that are in the slot alone are lost then. "+
		"If no row was inserted meanwhile: UPDATE troupe.mapped_tables SET publication = NULL WHERE name = '%[3]s'",
		errAltered, r.cfg.Slot, r.mapped)
}
