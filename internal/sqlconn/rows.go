package sqlconn

import (
	"database/sql/driver"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows implements driver.Rows with the rows of pgx.
type rows struct {
	conn  *conn
	rows  pgx.Rows
	types *pgtype.Map
	first bool // QueryContext has read the first row, and Next has not returned it yet
	more  bool // the last read found a row
	open  bool // counted in conn.open
}

func (r *rows) Columns() []string {
	fields := r.rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func (r *rows) Next(dest []driver.Value) error {
	if err := r.conn.start(); err != nil {
		return err
	}
	defer r.conn.done()
	if r.first {
		r.first = false
	} else {
		r.more = r.rows.Next()
	}
	if !r.more {
		r.closed()
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	for i, f := range r.rows.FieldDescriptions() {
		var err error
		if dest[i], err = value(r.types, f, r.rows.RawValues()[i]); err != nil {
			return fmt.Errorf("column %s: %w", f.Name, err)
		}
	}
	return nil
}

// Close reads the rest of the rows. After With's function has returned it does nothing: With has reported the open rows.
func (r *rows) Close() error {
	if r.conn.start() != nil {
		return nil
	}
	defer r.conn.done()
	r.rows.Close()
	r.closed()
	return r.rows.Err()
}

func (r *rows) closed() {
	if r.open {
		r.open = false
		r.conn.count(-1)
	}
}

// value returns a column as one of the types of driver.Value; nil for NULL.
func value(types *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	if raw == nil {
		return nil, nil
	}
	switch f.DataTypeOID {
	case pgtype.BoolOID:
		return scanned[bool](types, f, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scanned[int64](types, f, raw)
	case pgtype.OIDOID, pgtype.CIDOID, pgtype.XIDOID:
		return valued[pgtype.Uint32](types, f, raw)
	case pgtype.Float4OID:
		var v float32 // as pgx's stdlib: 0.1 becomes the float64 of the float32
		err := types.Scan(f.DataTypeOID, f.Format, raw, &v)
		return float64(v), err
	case pgtype.Float8OID:
		return scanned[float64](types, f, raw)
	case pgtype.DateOID:
		return valued[pgtype.Date](types, f, raw)
	case pgtype.TimestampOID:
		return valued[pgtype.Timestamp](types, f, raw)
	case pgtype.TimestamptzOID:
		return valued[pgtype.Timestamptz](types, f, raw)
	case pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID:
		return scanned[[]byte](types, f, raw)
	}
	return scanned[string](types, f, raw)
}

func scanned[T any](types *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	var v T
	err := types.Scan(f.DataTypeOID, f.Format, raw, &v)
	return v, err
}

// valued scans into a type of pgx that has more values than Go's own, such as an infinite time.
func valued[T driver.Valuer](types *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	var v T
	if err := types.Scan(f.DataTypeOID, f.Format, raw, &v); err != nil {
		return nil, err
	}
	return v.Value()
}

func (r *rows) field(i int) pgconn.FieldDescription { return r.rows.FieldDescriptions()[i] }

// ColumnTypeDatabaseTypeName returns the type's name in upper case, or its OID if pgx does not know it.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	oid := r.field(i).DataTypeOID
	if known, ok := r.types.TypeForOID(oid); ok {
		return strings.ToUpper(known.Name)
	}
	return strconv.FormatUint(uint64(oid), 10)
}

// header is the number that Postgres adds to the length in a type modifier (VARHDRSZ).
const header = 4

func (r *rows) ColumnTypeLength(i int) (length int64, ok bool) {
	switch f := r.field(i); f.DataTypeOID {
	case pgtype.TextOID, pgtype.ByteaOID:
		return math.MaxInt64, true
	case pgtype.VarcharOID, pgtype.BPCharOID:
		return int64(f.TypeModifier - header), true
	case pgtype.VarbitOID:
		return int64(f.TypeModifier), true
	}
	return 0, false
}

func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	f := r.field(i)
	if f.DataTypeOID != pgtype.NumericOID {
		return 0, 0, false
	}
	modifier := f.TypeModifier - header
	return int64(modifier >> 16 & 0xffff), int64(modifier & 0xffff), true
}

// scanTypes holds the Go type for each type of Postgres; string for all others.
var scanTypes = map[uint32]reflect.Type{
	pgtype.BoolOID: reflect.TypeFor[bool](), pgtype.ByteaOID: reflect.TypeFor[[]byte](),
	pgtype.Int2OID: reflect.TypeFor[int16](), pgtype.Int4OID: reflect.TypeFor[int32](), pgtype.Int8OID: reflect.TypeFor[int64](),
	pgtype.Float4OID: reflect.TypeFor[float32](), pgtype.Float8OID: reflect.TypeFor[float64](), pgtype.NumericOID: reflect.TypeFor[float64](),
	pgtype.DateOID: reflect.TypeFor[time.Time](), pgtype.TimestampOID: reflect.TypeFor[time.Time](), pgtype.TimestamptzOID: reflect.TypeFor[time.Time](),
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if t, ok := scanTypes[r.field(i).DataTypeOID]; ok {
		return t
	}
	return reflect.TypeFor[string]()
}
