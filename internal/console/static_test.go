package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// keeping records where the bytes of an answer are in memory.
type keeping struct {
	*httptest.ResponseRecorder
	at *byte
}

func (k *keeping) Write(text []byte) (int, error) {
	k.at = unsafe.SliceData(text)
	return k.ResponseRecorder.Write(text)
}

// A client needs no token for these files, and may read them slowly.
func TestAStaticFileIsNotCopiedForEachRequest(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, address := range []string{"/openapi.json", "/static/console.js", "/static/openapi.json"} {
		var places []*byte
		for range 2 {
			w := &keeping{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+address, nil)
			d.c.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code)
			require.NotEmpty(t, w.Header().Get("Content-Type"), address)
			places = append(places, w.at)
		}
		require.Same(t, places[0], places[1], address)
	}
	for _, name := range []string{"/static/.", "/static/..", "/static/..%2Fstatic%2Fconsole.js", "/static/none.js"} {
		require.NotEqual(t, http.StatusOK, d.get(name).Code, name)
	}
}
