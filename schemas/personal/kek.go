package personal

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/aesgcm"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/secretdata"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/troupe-go/troupe/internal/credentials"
)

// KeyFile reads a key-encryption key from a file: 32 random bytes in base64, such as the output of `openssl rand -base64 32`. With several
// lines it encrypts with the first one, and decrypts with all. To change the key, put a new line below the old one and restart all services;
// then move it to the top and restart them again; then call Table.Rewrap, and remove the old line. No error contains a key.
func KeyFile(path string) (tink.AEAD, error) {
	text, err := credentials.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("personal: key-encryption key: %w", err)
	}
	return parseKeys(text)
}

// KeyCommand is KeyFile for the output of a command, which is not run by a shell.
func KeyCommand(ctx context.Context, line string) (tink.AEAD, error) {
	command, err := credentials.ParseCommand(line)
	if err != nil {
		return nil, fmt.Errorf("personal: key-encryption key: %w", err)
	}
	text, err := command.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("personal: key-encryption key: %w", err)
	}
	return parseKeys(text)
}

var errKeyText = errors.New("personal: key-encryption key: want lines of 32 bytes in base64, as of openssl rand -base64 32")

// parseKeys returns an AEAD that encrypts with the key of the first line, and decrypts with the keys of all lines.
func parseKeys(text string) (tink.AEAD, error) {
	parameters, err := aesgcm.NewParameters(aesgcm.ParametersOpts{KeySizeInBytes: 32, IVSizeInBytes: 12, TagSizeInBytes: 16, Variant: aesgcm.VariantTink})
	if err != nil {
		return nil, err
	}
	all := keyset.NewManager()
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%w: line %d is none", errKeyText, i+1)
		}
		sum := sha256.Sum256(raw)
		id := binary.BigEndian.Uint32(sum[:]) // so that each process gives a key the same id
		key, err := aesgcm.NewKey(secretdata.NewBytesFromData(raw, insecuresecretdataaccess.Token{}), id, parameters)
		if err != nil {
			return nil, err
		}
		if id, err = all.AddKey(key); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", errKeyText, i+1, err)
		}
		if i == 0 {
			if err := all.SetPrimary(id); err != nil {
				return nil, err
			}
		}
	}
	handle, err := all.Handle()
	if err != nil {
		return nil, err
	}
	return aead.New(handle)
}
