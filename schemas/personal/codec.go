package personal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go/v2/tink"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// Prefix begins the text of each encrypted value. The number is the version of the format.
const Prefix = "troupe.personal.1:"

// Config configures New.
type Config struct {
	Codec *schemas.Codec // required: encodes and decodes the payloads, with the marks in the schemas of its types
	Keys  Keys           // required: such as a Table
	// CacheFor is the time for which a key is used after it was read: after that time no process of the service reads data of a forgotten subject
	// any more. Default: a minute. Each process keeps at most 1,024 keys.
	CacheFor time.Duration
	// Timeout limits a call of Keys. Default 5 s.
	Timeout time.Duration
	// DecryptOnly reads encrypted values and writes values as they are. Use it while a field becomes personal, until all readers have the
	// mark.
	DecryptOnly bool
}

// A Codec is a schemas.Codec that encrypts the fields that schemas mark as personal, and decrypts them. It is safe for concurrent use.
//
// It reads keys from their store inside Encode, which a handler calls in its transaction, on a connection of its own.
type Codec struct {
	inner       *schemas.Codec
	keys        *cache
	types       map[reflect.Type]*marked
	byName      map[string]*marked
	decryptOnly bool
}

// marked is a Go type with marks: of a Protobuf message, or of a struct.
type marked struct {
	goType  reflect.Type
	message *record
	plan    *plan
	kinds   map[string]string // by the paths of the fields
}

var _ envelope.Codec = (*Codec)(nil)

// New reads the marks of all types of cfg.Codec. It fails if a field is marked that cannot be encrypted.
func New(cfg Config) (*Codec, error) {
	switch {
	case cfg.Codec == nil:
		return nil, errors.New("personal: Codec is nil: set it to the result of schemas.New")
	case cfg.Keys == nil:
		return nil, errors.New("personal: Keys is nil: set it to the result of NewTable")
	case cfg.CacheFor < 0 || cfg.Timeout < 0:
		return nil, fmt.Errorf("personal: CacheFor %s, Timeout %s: want 0, for the default, or more", cfg.CacheFor, cfg.Timeout)
	}
	if cfg.CacheFor == 0 {
		cfg.CacheFor = time.Minute
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	c := &Codec{
		inner: cfg.Codec, keys: newCache(cfg.Keys, cfg.CacheFor, cfg.Timeout), decryptOnly: cfg.DecryptOnly,
		types: make(map[reflect.Type]*marked), byName: make(map[string]*marked),
	}
	for _, b := range cfg.Codec.Bound() {
		m, err := markedOf(b.GoType, b.Format, b.Text)
		if err != nil {
			return nil, fmt.Errorf("personal: %s: %w", b.Name, err)
		}
		if m == nil {
			continue
		}
		if reflect.PointerTo(b.GoType).Implements(plain) {
			return nil, fmt.Errorf("personal: %s: %v has a method PlainJSON, so it is always sent as JSON, without this codec: remove the method", b.Name, b.GoType)
		}
		c.types[b.GoType], c.byName[b.Name] = m, m
	}
	return c, nil
}

var plain = reflect.TypeFor[envelope.Plain]()

// markedOf returns a type with its marks, or nil if it has none.
func markedOf(t reflect.Type, format, text string) (*marked, error) {
	m := &marked{goType: t}
	var r *record
	var err error
	tag := avroTag
	switch format {
	case envelope.Avro:
		r, err = markedAvro(text)
	case envelope.JSONSchema:
		tag = jsonTag
		r, err = markedJSON(text)
	case envelope.Protobuf:
		message, is := reflect.New(t).Interface().(proto.Message)
		if !is {
			return nil, fmt.Errorf("%v is not a Protobuf message", t)
		}
		r, err = markedProtobuf(message.ProtoReflect().Descriptor())
		m.message = r
	default:
		return nil, fmt.Errorf("payloads of type %s cannot have personal fields", format)
	}
	if err != nil || !r.encrypts() {
		return nil, err
	}
	if err := r.check("", false); err != nil {
		return nil, err
	}
	m.kinds = make(map[string]string)
	r.collect("", m.kinds)
	if m.message == nil {
		m.plan, err = planOf(r, t, tag)
	}
	return m, err
}

// change calls ch for all marked fields of a pointer to a value.
func (m *marked) change(pointer reflect.Value, ch changer) error {
	if m.message != nil {
		return m.message.change("", pointer.Interface().(proto.Message).ProtoReflect(), "", ch)
	}
	return m.plan.change("", pointer.Elem(), "", ch)
}

// Encode encodes body as the inner codec does, with its personal fields encrypted. It does not change body. It makes a key for a subject
// that has none. Its error wraps ErrForgotten, and is permanent, for data of a subject whose key is forgotten.
func (c *Codec) Encode(topic string, body any) (envelope.Encoded, error) {
	v := reflect.ValueOf(body)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() || c.types[v.Type()] == nil {
		return c.inner.Encode(topic, body)
	}
	m := c.types[v.Type()]
	own := reflect.New(m.goType)
	if m.message != nil {
		message, is := body.(proto.Message)
		if !is {
			return c.inner.Encode(topic, body) // its error
		}
		own = reflect.ValueOf(proto.Clone(message))
	} else {
		own.Elem().Set(v)
	}
	if err := m.change(own, c.encrypt); err != nil {
		return envelope.Encoded{}, fmt.Errorf("personal: %w", err)
	}
	return c.inner.Encode(topic, own.Interface())
}

// Encrypt returns the text by which Encode replaces a value of a kind, for data that a schema does not describe, such as a saga's variables:
// the saga can copy it to a field of the same kind.
func (c *Codec) Encrypt(subject, kind, value string) (string, error) {
	if !kindName.MatchString(kind) || kind == subjectMark {
		return "", fmt.Errorf("personal: %q is no kind of personal data: want a word such as email", kind)
	}
	text, err := c.encrypt(field{kind, kind, subject}, []byte(value))
	if err != nil {
		return "", fmt.Errorf("personal: %w", err)
	}
	return string(text), nil
}

func (c *Codec) encrypt(f field, value []byte) ([]byte, error) {
	switch {
	case c.decryptOnly && strings.HasPrefix(string(value), Prefix):
		return nil, retry.Permanent(fmt.Errorf("encrypt %s: the value begins with %q, as encrypted ones do", f.path, Prefix))
	case c.decryptOnly || len(value) == 0:
		return value, nil
	case f.subject == "":
		return nil, retry.Permanent(fmt.Errorf("encrypt %s: %w", f.path, errNoSubject))
	case !pgtext.Fits(f.subject):
		return nil, retry.Permanent(fmt.Errorf("encrypt %s: %w", f.path, errSubjectText))
	}
	key, err := c.key(f.subject, true)
	if errors.Is(err, ErrForgotten) {
		err = retry.Permanent(err)
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", f.path, err)
	}
	sealed, err := key.EncryptDeterministically(value, f.associated())
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", f.path, err)
	}
	return base64.RawURLEncoding.AppendEncode([]byte(Prefix), sealed), nil
}

// key returns a subject's key. An error but ErrForgotten is marked with a wait: a participant does not take it for an error about the value,
// and does not use up the message's attempts while lookups fail at once.
func (c *Codec) key(subject string, create bool) (tink.DeterministicAEAD, error) {
	key, err := c.keys.get(subject, create)
	if err != nil && !errors.Is(err, ErrForgotten) {
		err = retry.After(err, retryAfter)
	}
	return key, err
}

// associated returns the associated data of a field's ciphertext.
func (f field) associated() []byte { return []byte(f.kind + "\x00" + f.subject) }

// TypeOf returns the inner codec's answer.
func (c *Codec) TypeOf(body any) (string, error) { return c.inner.TypeOf(body) }

// Decode decodes m's payload as the inner codec does, and decrypts its personal fields. A field of a subject whose key is forgotten is
// left empty: Forgotten tells it from a field that was empty.
func (c *Codec) Decode(m envelope.Message, into any) error {
	_, err := c.decode(m, into)
	return err
}

// Forgotten returns the paths of the fields of m that Decode leaves empty because the key of their subject is forgotten, such as
// "passengers[1].name". It is for handlers that must tell forgotten data from data that was never there.
func (c *Codec) Forgotten(m envelope.Message) ([]string, error) {
	t := c.byName[m.Type]
	if t == nil {
		return nil, nil
	}
	return c.decode(m, reflect.New(t.goType).Interface())
}

func (c *Codec) decode(m envelope.Message, into any) (forgotten []string, err error) {
	if err := c.inner.Decode(m, into); err != nil {
		return nil, err
	}
	v := reflect.ValueOf(into)
	for v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Pointer && !v.Elem().IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Pointer || c.types[v.Type().Elem()] == nil {
		return nil, nil
	}
	err = c.types[v.Type().Elem()].change(v, func(f field, value []byte) ([]byte, error) {
		text, is := strings.CutPrefix(string(value), Prefix)
		if !is {
			return value, nil
		}
		opened, err := c.decrypt(f, text)
		if errors.Is(err, ErrForgotten) {
			forgotten = append(forgotten, f.path)
			return nil, nil
		}
		return opened, err
	})
	return forgotten, err
}

// errSubjectText is the error about a subject that no erasure could name, and that JSON would change.
var errSubjectText = errors.New("the subject is not text in UTF-8, or contains the character NUL")

// errSealed does not tell apart why a ciphertext cannot be decrypted, as the cryptography does not.
var errSealed = errors.New("it was changed, or encrypted for another subject, as another kind of data or with another key")

func (c *Codec) decrypt(f field, text string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: decrypt %s: it is not base64 after the prefix", envelope.ErrPayload, f.path)
	}
	if f.subject == "" {
		return nil, fmt.Errorf("%w: decrypt %s: %w", envelope.ErrPayload, f.path, errNoSubject)
	}
	key, err := c.key(f.subject, false)
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", f.path, err)
	}
	opened, err := key.DecryptDeterministically(sealed, f.associated())
	if err != nil {
		return nil, fmt.Errorf("%w: decrypt %s: %w", envelope.ErrPayload, f.path, errSealed)
	}
	return opened, nil
}
