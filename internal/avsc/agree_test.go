package avsc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/testkit"
)

// This package's check and the registry's must agree on every rule. With TROUPE_REGISTRY that is an independent registry; the
// embedded one uses this check. Registries ignore logical types.
func TestTheRegistryAgreesWithTheCheck(t *testing.T) {
	t.Parallel()
	address := testkit.Registry(t)
	registry, err := registry.New(address)
	require.NoError(t, err)
	client, err := sr.NewClient(sr.URLs(address))
	require.NoError(t, err)
	prefix := "t-" + uuid.NewString()
	for i, e := range evolutions() {
		for level, problem := range map[avsc.Level]string{avsc.Backward: e.backward, avsc.Forward: e.forward} {
			t.Run(fmt.Sprint(e.what, ", ", level), func(t *testing.T) {
				t.Parallel()
				subject := fmt.Sprintf("%s-%d-%s", prefix, i, level)
				t.Cleanup(func() { require.NoError(t, registry.DeleteSubjects(context.WithoutCancel(t.Context()), subject)) })
				_, err := registry.Register(t.Context(), subject, sr.Schema{Schema: e.old})
				require.NoError(t, err)
				var set sr.SetCompatibility
				require.NoError(t, set.Level.UnmarshalText([]byte(level)))
				require.NoError(t, client.SetCompatibility(t.Context(), set, subject)[0].Err)
				is, err := registry.Level(t.Context(), subject)
				require.NoError(t, err)
				require.Equal(t, level, is)

				ok, reasons, err := registry.Accepts(t.Context(), subject, sr.Schema{Schema: e.next})
				require.NoError(t, err)
				if e.logical && ok {
					return
				}
				require.Equal(t, problem == "", ok, "registry: %q, check: %s", reasons, problem)
				_, err = registry.Register(t.Context(), subject, sr.Schema{Schema: e.next})
				var answer *sr.ResponseError
				if !ok {
					require.ErrorAs(t, err, &answer)
					require.Equal(t, 409, answer.StatusCode)
					return
				}
				require.NoError(t, err)
				versions, err := registry.Versions(t.Context(), subject)
				require.NoError(t, err)
				require.Equal(t, "version 1", versions[0].Label)
			})
		}
	}
	none, err := registry.Versions(t.Context(), prefix)
	require.NoError(t, err)
	require.Empty(t, none)
	ok, _, err := registry.Accepts(t.Context(), prefix, sr.Schema{Schema: field(`"int"`)})
	require.NoError(t, err)
	require.True(t, ok, "a subject that is not there accepts anything")
}
