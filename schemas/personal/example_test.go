package personal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/personal"
)

// A Registered has the name of a customer.
type Registered struct {
	CustomerID string `avro:"customer_id"`
	Name       string `avro:"name"`
}

const registeredAvro = `{"type": "record", "name": "shop.Registered", "fields": [
	{"name": "customer_id", "type": "string", "personal": "subject"},
	{"name": "name", "type": "string", "personal": "name"}]}`

// A message is encrypted, read, and forgotten.
func Example() {
	ctx := context.Background()
	if err := rememberAndForget(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// without a key: c-1 troupe.personal.1:…
	// with the key: c-1 Ann
	// forgotten: c-1 "", since name is forgotten
}

// openCodec makes the codec of a service. The file has the output of `openssl rand -base64 32`.
func openCodec(ctx context.Context, pool *pgxpool.Pool, inner *schemas.Codec, file string) (*personal.Codec, func(), error) {
	kek, err := personal.KeyFile(file)
	if err != nil {
		return nil, nil, err
	}
	keys, err := personal.NewTable(ctx, pool, kek)
	if err != nil {
		return nil, nil, err
	}
	codec, err := personal.New(personal.Config{Codec: inner, Keys: keys})
	return codec, keys.Close, err // codec is participant.Config.Codec, or outbox.Config.Encoder
}

func rememberAndForget(ctx context.Context) error {
	pool, end, err := playground(ctx)
	if err != nil {
		return err
	}
	defer end()
	server := srfake.New() // a registry in this process
	defer server.Close()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		return err
	}
	inner, err := schemas.New(ctx, schemas.Config{Registry: registry, Types: []schemas.Type{schemas.Bind[Registered](registeredAvro)}})
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "kek")
	if err := os.WriteFile(file, []byte(strings.Repeat("A", 43)+"="), 0o600); err != nil { // never use such a key
		return err
	}

	codec, closeKeys, err := openCodec(ctx, pool, inner, file)
	if err != nil {
		return err
	}
	defer closeKeys()
	encoded, err := codec.Encode("shop.customer.events", Registered{"c-1", "Ann"})
	if err != nil {
		return err
	}
	message := envelope.Message{Type: encoded.Type, ContentType: encoded.ContentType, Payload: encoded.Payload}
	var raw, read Registered
	if err := inner.Decode(message, &raw); err != nil {
		return err
	}
	prefix, _, _ := strings.Cut(raw.Name, ":")
	fmt.Printf("without a key: %s %s:…\n", raw.CustomerID, prefix)
	if err := codec.Decode(message, &read); err != nil {
		return err
	}
	fmt.Println("with the key:", read.CustomerID, read.Name)

	// As troupe erase c-1 does.
	const forget = "UPDATE troupe.subject_keys SET wrapped_key = NULL, forgotten_at = now() WHERE subject = sha256('c-1')"
	if _, err := pool.Exec(ctx, forget); err != nil {
		return err
	}
	again, closeAgain, err := openCodec(ctx, pool, inner, file) // another process, or this one after a minute
	if err != nil {
		return err
	}
	defer closeAgain()
	if err := again.Decode(message, &read); err != nil {
		return err
	}
	forgotten, err := again.Forgotten(message)
	if err != nil {
		return err
	}
	fmt.Printf("forgotten: %s %q, since %s is forgotten\n", read.CustomerID, read.Name, strings.Join(forgotten, ", "))
	return nil
}
