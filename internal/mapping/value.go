package mapping

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Column describes a column of a row, as pgoutput's Relation message or the description of a query's result does. For a
// domain, use its base type; for an enum, or a type of category string, 25 (text). ColumnsSQL and TypesSQL do that.
type Column struct {
	Name     string
	Type     uint32 // OID
	Modifier int32  // of the type, such as the precision of a timestamp; -1 for none
}

// ColumnsSQL selects name, type and modifier of the columns of table $1, a name for to_regclass, in the form that Column
// requires. It leaves out generated columns, which the log does not have.
const ColumnsSQL = `
WITH RECURSIVE c (attnum, attname, typ, modifier) AS (
    SELECT attnum, attname, atttypid, atttypmod
    FROM pg_attribute
    WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
  UNION ALL
    SELECT c.attnum, c.attname, t.typbasetype, CASE WHEN c.modifier = -1 THEN t.typtypmod ELSE c.modifier END
    FROM c JOIN pg_type t ON t.oid = c.typ
    WHERE t.typtype = 'd'
)
SELECT c.attname::text, CASE WHEN t.typtype = 'e' OR t.typcategory = 'S' THEN 25 ELSE t.oid END, c.modifier
FROM c JOIN pg_type t ON t.oid = c.typ
WHERE t.typtype <> 'd'
ORDER BY c.attnum`

// InheritsSQL selects whether tables inherit from table $1 that are not its partitions.
const InheritsSQL = `
SELECT EXISTS (
  SELECT
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhparent
  WHERE c.oid = $1::text::regclass
    AND c.relkind <> 'p')`

// ErrInherits is the error for a table of which InheritsSQL selects true.
var ErrInherits = errors.New("other tables inherit from it, and the log has their rows under their own names: partition the table instead, " +
	"or end the inheritance (ALTER TABLE … NO INHERIT …)")

// TypesSQL selects the type and modifier of columns in the form that Column requires, from their types $1 (OIDs) and modifiers $2 in the
// log. It has no row for a type that was dropped. A column in the log may have had another type than the table's column of that name has
// now.
const TypesSQL = `
WITH RECURSIVE c (n, typ, modifier) AS (
    SELECT n, typ, modifier
    FROM unnest($1::oid[], $2::integer[]) WITH ORDINALITY AS logged (typ, modifier, n)
  UNION ALL
    SELECT c.n, t.typbasetype, CASE WHEN c.modifier = -1 THEN t.typtypmod ELSE c.modifier END
    FROM c JOIN pg_type t ON t.oid = c.typ
    WHERE t.typtype = 'd'
)
SELECT c.n, CASE WHEN t.typtype = 'e' OR t.typcategory = 'S' THEN 25 ELSE t.oid END, c.modifier
FROM c JOIN pg_type t ON t.oid = c.typ
WHERE t.typtype <> 'd'`

// A Value is the value of one column as the server sent it. Nil Data is SQL's null; an empty value is not nil.
type Value struct {
	Data   []byte
	Binary bool // in the type's binary format, not as text
	// Encoding is empty, or the encoding of a value that Table.Recode could not convert to UTF-8.
	Encoding string
	// Missing is the length of a value that Row.Without has left out; 0: it is there.
	Missing int
}

// kind selects how a value is read.
type kind int

const (
	kindOther kind = iota // converted to text by pgtype
	kindText
	kindJSONB
	kindBytes
	kindUUID
	kindBool
	kindInt2
	kindInt4
	kindInt8
	kindFloat
	kindTimestamp
	kindTimestampTZ
	kindDate
	kindTime
	kindXID8
)

var integers = []kind{kindInt2, kindInt4, kindInt8}

var kindOf = map[uint32]kind{
	pgtype.TextOID: kindText, pgtype.VarcharOID: kindText, pgtype.BPCharOID: kindText, pgtype.NameOID: kindText,
	pgtype.JSONOID: kindText, pgtype.XMLOID: kindText, pgtype.UnknownOID: kindText,
	pgtype.JSONBOID: kindJSONB, pgtype.ByteaOID: kindBytes, pgtype.UUIDOID: kindUUID, pgtype.BoolOID: kindBool,
	pgtype.Int2OID: kindInt2, pgtype.Int4OID: kindInt4, pgtype.Int8OID: kindInt8,
	pgtype.Float4OID: kindFloat, pgtype.Float8OID: kindFloat,
	pgtype.TimestampOID: kindTimestamp, pgtype.TimestamptzOID: kindTimestampTZ,
	pgtype.DateOID: kindDate, pgtype.TimeOID: kindTime, pgtype.XID8OID: kindXID8,
}

func (k kind) String() string {
	switch k {
	case kindInt2, kindInt4, kindInt8:
		return "an integer"
	case kindTimestamp, kindTimestampTZ:
		return "a timestamp"
	case kindXID8:
		return "an xid8"
	}
	return "something else"
}

var (
	errLength = errors.New("its binary format is of another length")
	errNull   = errors.New("is null")
	errNoID   = errors.New("is null, but an event needs an id: insert the row again with one and discard this one, " +
		"or name a column by table.field.event.id that is never null")
)

// A reader reads the values of one column.
type reader struct {
	Column
	kind  kind
	types *pgtype.Map // for kindOther, kindFloat, dates and times; shared by the readers of one Table
}

// scalar returns the value as text, and whether JSON writes it without quotes.
func (r *reader) scalar(v Value) (text []byte, bare bool, err error) {
	if err := v.readable(); err != nil {
		return v.Data, false, err
	}
	switch r.kind {
	case kindText:
		return v.Data, false, nil
	case kindJSONB:
		if v.Binary {
			if len(v.Data) == 0 || v.Data[0] != 1 {
				return nil, false, errors.New("an unknown version of jsonb")
			}
			return v.Data[1:], false, nil
		}
		return v.Data, false, nil
	case kindBytes:
		raw, err := r.bytes(v)
		return base64.StdEncoding.AppendEncode(nil, raw), false, err
	case kindUUID:
		if v.Binary {
			id, err := uuid.FromBytes(v.Data)
			if err != nil {
				return nil, false, errLength
			}
			text, err = id.MarshalText()
			return text, false, err
		}
		return v.Data, false, nil
	case kindBool:
		on, err := r.bool(v)
		return strconv.AppendBool(nil, on), true, err
	case kindInt2, kindInt4, kindInt8:
		if v.Binary {
			n, err := r.int(v)
			return strconv.AppendInt(nil, n, 10), true, err
		}
		return v.Data, true, nil
	case kindXID8:
		n, err := r.xid(v)
		return strconv.AppendUint(nil, n, 10), true, err
	case kindFloat:
		text, err := r.other(v)
		f, bad := strconv.ParseFloat(string(text), 64)
		return text, bad == nil && !math.IsNaN(f) && !math.IsInf(f, 0), err
	case kindTimestamp, kindTimestampTZ, kindDate, kindTime:
		return r.when(v)
	}
	text, err = r.other(v)
	return text, false, err
}

// bytes returns the value as a key or a payload: a bytea's own bytes, else the scalar's text.
func (r *reader) bytes(v Value) ([]byte, error) {
	if err := v.readable(); err != nil {
		return v.Data, err
	}
	if r.kind != kindBytes {
		text, _, err := r.scalar(v)
		return text, err
	}
	if v.Binary {
		return v.Data, nil
	}
	digits, ok := strings.CutPrefix(string(v.Data), `\x`)
	if !ok {
		return nil, errors.New("a bytea as text, but not in hex: set bytea_output to hex for the relay's role")
	}
	return hex.DecodeString(digits)
}

func (r *reader) bool(v Value) (bool, error) {
	if len(v.Data) != 1 {
		return false, errLength
	}
	if v.Binary {
		return v.Data[0] != 0, nil
	}
	return v.Data[0] == 't', nil
}

func (r *reader) int(v Value) (int64, error) {
	if !v.Binary {
		return strconv.ParseInt(string(v.Data), 10, 64)
	}
	switch {
	case r.kind == kindInt2 && len(v.Data) == 2:
		return int64(int16(binary.BigEndian.Uint16(v.Data))), nil
	case r.kind == kindInt4 && len(v.Data) == 4:
		return int64(int32(binary.BigEndian.Uint32(v.Data))), nil
	case r.kind == kindInt8 && len(v.Data) == 8:
		return int64(binary.BigEndian.Uint64(v.Data)), nil
	}
	return 0, errLength
}

func (r *reader) xid(v Value) (uint64, error) {
	if !v.Binary {
		return strconv.ParseUint(string(v.Data), 10, 64)
	}
	if len(v.Data) != 8 {
		return 0, errLength
	}
	return binary.BigEndian.Uint64(v.Data), nil
}

// when renders a time as Debezium does in its adaptive mode. An infinite time is rendered as Postgres's word for it.
func (r *reader) when(v Value) (text []byte, bare bool, err error) {
	switch r.kind {
	case kindDate:
		var d pgtype.Date
		if err := r.scan(v, &d); err != nil || d.InfinityModifier != pgtype.Finite {
			return []byte(d.InfinityModifier.String()), false, err
		}
		return strconv.AppendInt(nil, d.Time.Unix()/(24*60*60), 10), true, nil
	case kindTime:
		var t pgtype.Time
		err := r.scan(v, &t)
		return r.epoch(t.Microseconds), true, err
	}
	at, infinite, err := r.time(v)
	switch {
	case err != nil || infinite != "":
		return []byte(infinite), false, err
	case r.kind == kindTimestamp:
		return r.epoch(at.UnixMicro()), true, nil
	}
	layout := "2006-01-02T15:04:05.000000"
	if p := int(r.Modifier); p >= 0 && p < 6 {
		layout = strings.TrimSuffix(layout[:len(layout)-6+p], ".")
	}
	return at.UTC().AppendFormat(nil, layout+"Z"), false, nil
}

// epoch renders micros, in milliseconds if the column's precision is no finer.
func (r *reader) epoch(micros int64) []byte {
	if r.Modifier >= 0 && r.Modifier <= 3 {
		micros /= 1000
	}
	return strconv.AppendInt(nil, micros, 10)
}

// time returns a timestamp. For an infinite one, infinite is Postgres's word for it.
func (r *reader) time(v Value) (at time.Time, infinite string, err error) {
	if r.kind == kindTimestamp {
		var t pgtype.Timestamp
		err = r.scan(v, &t)
		at, infinite = t.Time, t.InfinityModifier.String()
	} else {
		var t pgtype.Timestamptz
		err = r.scan(v, &t)
		at, infinite = t.Time, t.InfinityModifier.String()
	}
	if infinite == pgtype.Finite.String() {
		infinite = ""
	}
	return at.UTC(), infinite, err
}

func (r *reader) scan(v Value, into any) error {
	return r.types.Scan(r.Type, format(v), v.Data, into)
}

func format(v Value) int16 {
	if v.Binary {
		return pgtype.BinaryFormatCode
	}
	return pgtype.TextFormatCode
}

// other returns Postgres's text of a value of any type that pgtype knows.
func (r *reader) other(v Value) ([]byte, error) {
	if !v.Binary {
		return v.Data, nil
	}
	t, known := r.types.TypeForOID(r.Type)
	if !known {
		return nil, fmt.Errorf("type OID %d is not known in its binary format: cast the column to text in the table, or see mapping.Column", r.Type)
	}
	value, err := t.Codec.DecodeValue(r.types, r.Type, pgtype.BinaryFormatCode, v.Data)
	if err != nil {
		return nil, err
	}
	text, err := r.types.Encode(r.Type, pgtype.TextFormatCode, value, nil)
	if host, ok := value.(netip.Prefix); ok && r.Type == pgtype.InetOID && host.IsSingleIP() {
		return []byte(host.Addr().String()), err // Postgres leaves out the mask of a single host
	}
	return text, err
}
