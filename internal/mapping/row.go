package mapping

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Row is a row stored outside its table, with the columns that it had. It holds a row that cannot be published now, and is
// made a message again later, by a mapping that may have changed by then.
type Row struct {
	Columns []Column
	Values  []Value // one for each of Columns
}

// keptColumn is a column of a Row in JSON; null Data is SQL's null.
type keptColumn struct {
	Name     string `json:"name"`
	Type     uint32 `json:"type"`
	Modifier int32  `json:"modifier"`
	Binary   bool   `json:"binary,omitempty"`
	Data     []byte `json:"data"` // base64
	Encoding string `json:"encoding,omitempty"`
	Missing  int    `json:"missing,omitempty"`
}

// MarshalJSON writes every column, including columns that no option names.
func (r Row) MarshalJSON() ([]byte, error) {
	if len(r.Columns) != len(r.Values) {
		return nil, fmt.Errorf("mapping: a row of %d columns and %d values", len(r.Columns), len(r.Values))
	}
	kept := make([]keptColumn, len(r.Columns))
	for n, c := range r.Columns {
		v := r.Values[n]
		kept[n] = keptColumn{c.Name, c.Type, c.Modifier, v.Binary, v.Data, v.Encoding, v.Missing}
	}
	return json.Marshal(kept)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (r *Row) UnmarshalJSON(text []byte) error {
	var kept []keptColumn
	if err := json.Unmarshal(text, &kept); err != nil {
		return fmt.Errorf("mapping: a kept row: %w", err)
	}
	r.Columns, r.Values = make([]Column, len(kept)), make([]Value, len(kept))
	for n, c := range kept {
		r.Columns[n] = Column{c.Name, c.Type, c.Modifier}
		r.Values[n] = Value{c.Data, c.Binary, c.Encoding, c.Missing}
	}
	return nil
}

// Size returns the number of bytes of the values.
func (r Row) Size() (bytes int) {
	for _, v := range r.Values {
		bytes += len(v.Data)
	}
	return bytes
}

// Without returns the row without its values of more than most bytes. Message returns an error if the mapping needs one of them.
func (r Row) Without(most int) Row {
	kept := Row{r.Columns, slices.Clone(r.Values)}
	for n, v := range kept.Values {
		if len(v.Data) > most {
			kept.Values[n].Data, kept.Values[n].Missing = []byte{}, len(v.Data)
		}
	}
	return kept
}

// Message returns the message that m makes of the row: Bind and Table.Message in one call, for a single row.
func (r Row) Message(m *Mapping) (Message, error) {
	table, err := m.Bind(r.Columns)
	if err != nil {
		return Message{Partition: ByKey}, fmt.Errorf("%w: %w", ErrRow, err)
	}
	return table.Message(r.Values)
}
