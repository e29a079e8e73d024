package schemas_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/schemas"
)

// guarded returns the address of a registry that accepts one password, and repeats other ones in its refusal.
func guarded(t *testing.T, password string) (address func(password string) string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, given, _ := req.BasicAuth(); given != password {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error_code":401,"message":"%s is wrong, and so is %s"}`, given, password)
			return
		}
		fmt.Fprint(w, `{"id":7}`)
	}))
	t.Cleanup(server.Close)
	return func(password string) string {
		u, err := url.Parse(server.URL)
		require.NoError(t, err)
		u.User = url.UserPassword("troupe", password)
		return u.String()
	}
}

func TestARegistryGetsAnotherAddressAndPasswordWhileItIsUsed(t *testing.T) {
	t.Parallel()
	here, there := guarded(t, "first-secret"), guarded(t, "second-secret")
	r, err := schemas.NewRegistry(here("first-secret"))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: r})
	require.NoError(t, err)
	require.NotNil(t, codec)
	register := func() error {
		_, err := r.Register(t.Context(), "a", `"string"`)
		return err
	}
	require.NoError(t, register())

	require.NoError(t, r.Replace(here("second-secret")))
	err = register()
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "second-secret")
	require.NotContains(t, err.Error(), "first-secret", "the replaced password may still be in use elsewhere")

	require.NoError(t, r.Replace(there("second-secret")))
	require.NoError(t, register())
	require.NotContains(t, r.String(), "secret")
	require.Contains(t, there(""), r.String()[len("http://"):])

	require.ErrorContains(t, r.Replace("ftp://second-secret"), "want an address such as")
	require.ErrorContains(t, r.Replace("http://troupe:third-secret@registry.example"), "use https")
	require.NoError(t, register(), "a refused address changes nothing")
}
