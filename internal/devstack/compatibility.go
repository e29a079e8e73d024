package devstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
)

// compatibility handles requests for srfake, which accepts every schema as compatible: it refuses a schema that a registry would
// refuse at the subject's level, with the reason. The fake stores the subjects; itself is a client that reads them from it.
type compatibility struct {
	fake   http.Handler
	itself *registry.Client
}

func (c compatibility) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, asks := strings.CutPrefix(req.URL.Path, "/compatibility")
	subject, rest, _ := strings.Cut(strings.TrimPrefix(path, "/subjects/"), "/")
	if req.Method != http.MethodPost || !strings.HasPrefix(rest, "versions") {
		c.fake.ServeHTTP(w, req)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"error_code": 42201, "message": err.Error()})
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	reasons, err := c.against(req, subject, body)
	switch {
	case err != nil:
		answer(w, http.StatusUnprocessableEntity, map[string]any{"error_code": 42201, "message": err.Error()})
	case asks:
		answer(w, http.StatusOK, map[string]any{"is_compatible": len(reasons) == 0, "messages": reasons})
	case len(reasons) > 0:
		message := fmt.Sprintf("Schema being registered is incompatible with an earlier schema for subject %q: %s",
			subject, strings.Join(reasons, "; "))
		answer(w, http.StatusConflict, map[string]any{"error_code": http.StatusConflict, "message": message})
	default:
		c.fake.ServeHTTP(w, req)
	}
}

// against returns the reasons against a schema. It returns none for a schema that is not Avro, or is registered already.
func (c compatibility) against(req *http.Request, subject string, body []byte) (reasons []string, err error) {
	var posted struct{ Schema, SchemaType string }
	if json.Unmarshal(body, &posted) != nil || posted.SchemaType != "" && posted.SchemaType != "AVRO" {
		return nil, nil
	}
	versions, err := c.itself.Versions(req.Context(), subject)
	if err != nil || slices.ContainsFunc(versions, func(v avsc.Version) bool { return v.Avsc == posted.Schema }) {
		return nil, err
	}
	level, err := c.itself.Level(req.Context(), subject)
	if err != nil {
		return nil, err
	}
	problems, err := avsc.Check(level, avsc.Version{Label: "the schema", Avsc: posted.Schema}, versions...)
	for _, p := range problems {
		reasons = append(reasons, p.String())
	}
	return reasons, err
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
