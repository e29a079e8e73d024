package secrets_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/secrets"
)

func TestASecretIsHiddenInEachOfItsForms(t *testing.T) {
	t.Parallel()
	l := secrets.New(append(secrets.BasicAuth("ann", "pass/\"1"), secrets.InHeader("Bearer tok-1")...)...)
	for _, text := range []string{
		`pass/"1`, `pass/\"1`, "pass%2F%221", "YW5uOnBhc3MvIjE=", "Bearer tok-1", "tok-1",
	} {
		require.Equal(t, "invalid … here", l.Hide("invalid "+text+" here"))
	}
}

// If a secret is a part of another, no part of the other stays in the text.
func TestTheLongestSecretIsHiddenFirst(t *testing.T) {
	t.Parallel()
	require.Equal(t, "…", secrets.New("tenant", "abc-tenant-def").Hide("abc-tenant-def"))
	require.Equal(t, "…", secrets.New("tenant").And(secrets.New("abc-tenant-def")).Hide("abc-tenant-def"))
}

func TestAShortSecretHidesNoPartOfWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a text", secrets.New("", "a", "tex").Hide("a text"))
}

func TestAnErrorWithoutItsSecretsIsStillItsCause(t *testing.T) {
	t.Parallel()
	err := secrets.New("hidden").HideIn(errors.Join(errors.New("hidden"), io.EOF))
	require.EqualError(t, err, "…\nEOF")
	require.ErrorIs(t, err, io.EOF)
}

// The end of a text that was cut may be the beginning of a secret, or a whole one.
func TestNoPartOfASecretIsLeftAtTheEndOfACutText(t *testing.T) {
	t.Parallel()
	l := secrets.New("tenant", "abc-tenant-def", "t1234")
	for _, end := range []string{"", "a", "abc-", "abc-tenant-d", "abc-tenant-def", "tenant", "tena"} {
		require.Equal(t, "… invalid …", l.HideCut("t1234 invalid "+end))
	}
}
