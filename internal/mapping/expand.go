package mapping

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxDepth is the depth down to which a payload is parsed; a deeper one is sent unchanged.
const maxDepth = 200

var errDeep = errors.New("too deep")

// expand makes a JSON document of a text that contains an object or an array. ok is false if it contains neither.
func (m *Mapping) expand(text []byte) (document []byte, ok bool) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil, false
	}
	var b bytes.Buffer
	b.Grow(len(text))
	if err := json.Compact(&b, text); err != nil {
		return nil, false
	}
	noNull, noEmpty := m.cfg.JSONNull == Ignore, m.cfg.JSONEmptyArray == Ignore
	if !(noNull && bytes.Contains(b.Bytes(), []byte("null")) || noEmpty && bytes.Contains(b.Bytes(), []byte("[]"))) {
		return b.Bytes(), true
	}
	p := pruner{rest: b.Bytes(), noNull: noNull, noEmpty: noEmpty, out: make([]byte, 0, b.Len())}
	if err := p.value(0); err != nil {
		return nil, false
	}
	return p.out, true
}

// A pruner copies compact, valid JSON without the members that are null or an empty array. Items of arrays stay.
type pruner struct {
	rest, out       []byte
	noNull, noEmpty bool
}

func (p *pruner) value(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	switch p.rest[0] {
	case '{':
		return p.members(depth)
	case '[':
		return p.items(depth)
	default:
		p.copy(scalarLength(p.rest))
		return nil
	}
}

func (p *pruner) members(depth int) error {
	p.copy(1)
	for first := true; p.rest[0] != '}'; {
		if p.rest[0] == ',' {
			p.rest = p.rest[1:]
		}
		name := scalarLength(p.rest) + 1 // and the colon
		if value := p.rest[name:]; p.noNull && value[0] == 'n' {
			p.rest = value[len("null"):]
			continue
		} else if p.noEmpty && bytes.HasPrefix(value, []byte("[]")) {
			p.rest = value[2:]
			continue
		}
		if !first {
			p.out = append(p.out, ',')
		}
		first = false
		p.copy(name)
		if err := p.value(depth + 1); err != nil {
			return err
		}
	}
	p.copy(1)
	return nil
}

func (p *pruner) items(depth int) error {
	for p.copy(1); p.out[len(p.out)-1] != ']'; p.copy(1) { // [ and , and ]
		if p.rest[0] == ']' {
			continue
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (p *pruner) copy(n int) {
	p.out, p.rest = append(p.out, p.rest[:n]...), p.rest[n:]
}

// scalarLength returns the length of the string, number or word that valid JSON begins with.
func scalarLength(b []byte) int {
	if b[0] != '"' {
		if end := bytes.IndexAny(b, ",]}"); end >= 0 {
			return end
		}
		return len(b)
	}
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}
