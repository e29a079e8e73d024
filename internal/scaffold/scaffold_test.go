package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/internal/scaffold"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/topics"
)

func service(t *testing.T) scaffold.Service {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	require.NoError(t, err)
	return scaffold.Service{Name: "seat-desk", Module: "example.org/seat-desk", Hop: topics.MustHop("booking", "seats"), Troupe: checkout}
}

// shortVariants have all that the others have: a short run runs their tests alone, and compiles all of them.
var shortVariants = []string{"pgx", "sqlc, database/sql, proto", "reacts", "reacts to the demo, in Avro, and answers in Protobuf"}

// TestANewServiceBuildsAndItsTestsPass does the first steps of a user: make a service, and run its tests.
func TestANewServiceBuildsAndItsTestsPass(t *testing.T) {
	t.Parallel()
	variants := map[string]func(*scaffold.Service){
		"pgx":                       func(*scaffold.Service) {},
		"database/sql":              func(s *scaffold.Service) { s.SQL = true },
		"sqlc":                      func(s *scaffold.Service) { s.Sqlc = true },
		"sqlc, database/sql, proto": func(s *scaffold.Service) { s.SQL, s.Sqlc, s.Proto = true, true, true },
		"reacts": func(s *scaffold.Service) {
			s.Hop, s.From, s.Event, s.Replace = topics.MustHop("booking", "tickets"), s.Hop, "cinema.SeatsSold", true
		},
		"reacts to the demo, in Avro": func(s *scaffold.Service) {
			s.Hop, s.From = topics.MustHop("order", "points"), topics.MustHop("order", "payment")
			s.AvroFile = filepath.Join(s.Troupe, "internal/demo/messages/PaymentCharged.avsc")
		},
		"reacts to the demo, in Avro, and answers in Protobuf": func(s *scaffold.Service) {
			s.Hop, s.From = topics.MustHop("order", "invoices"), topics.MustHop("order", "order")
			s.AvroFile = filepath.Join(s.Troupe, "internal/demo/messages/OrderCompleted.avsc")
			s.SQL, s.Sqlc, s.Proto = true, true, true
		},
		"reacts to an event of another package, proto": func(s *scaffold.Service) {
			s.Hop, s.From, s.Event, s.Proto = topics.MustHop("booking", "tickets"), s.Hop, "cinema.v1.SeatsSold", true
		},
		"reacts, sqlc, database/sql, proto": func(s *scaffold.Service) {
			s.Hop, s.From = topics.MustHop("booking", "7-id-order"), s.Hop
			s.SQL, s.Sqlc, s.Proto = true, true, true
		},
	}
	for name, change := range variants {
		t.Run(name, func(t *testing.T) { // one after the other: each compiles all of Troupe
			s := service(t)
			change(&s)
			files, err := s.Files()
			require.NoError(t, err)
			folder := filepath.Join(t.TempDir(), "seat-desk")
			require.NoError(t, scaffold.Write(folder, files))
			run := func(args ...string) {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=")
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
			}
			run("vet", "./...")
			// The last variants run what database/sql and sqlc add.
			if name != "database/sql" && name != "sqlc" && (!short.Run() || slices.Contains(shortVariants, name)) {
				run("test", "-count=1", "-timeout=8m", "./...")
			}
			out, err := exec.CommandContext(t.Context(), "gofmt", "-l", folder).CombinedOutput()
			require.NoError(t, err)
			require.Empty(t, string(out))
		})
	}
}

// The compose file is parsed as YAML here; docker/composetest loads it as docker compose does.
func TestTheComposeFileNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	s := service(t)
	files, err := s.Files()
	require.NoError(t, err)
	for _, f := range files {
		require.NotContains(t, string(f.Text), "<no value>", f.Path)
		if f.Path != "docker-compose.yml" {
			continue
		}
		var compose struct {
			Services map[string]struct {
				Build struct{ Context, Target string }
				Ports []string
			}
		}
		require.NoError(t, yaml.Unmarshal(f.Text, &compose))
		require.Len(t, compose.Services, 4)
		require.Equal(t, s.Troupe, compose.Services["relay"].Build.Context)
		image, err := os.ReadFile(filepath.Join(s.Troupe, "Dockerfile"))
		require.NoError(t, err)
		above, _, found := strings.Cut(string(image), " AS "+compose.Services["relay"].Build.Target+"\n")
		require.True(t, found)
		require.Equal(t, 1, strings.Count(above, "go build"), "only the relay is compiled above its target")
		require.NotContains(t, above, "./cmd/troupe")
		for name, one := range compose.Services {
			for _, port := range one.Ports {
				require.True(t, strings.HasPrefix(port, "127.0.0.1:"), name)
			}
		}
	}
}

func TestTheReadmeNamesGoWorkOnlyIfTheServiceHasOne(t *testing.T) {
	t.Parallel()
	for _, replace := range []bool{false, true} {
		s := service(t)
		s.Replace = replace
		files, err := s.Files()
		require.NoError(t, err)
		for _, f := range files {
			require.False(t, replace && f.Path == "go.work")
			if f.Path == "README.md" {
				require.Equal(t, !replace, strings.Contains(string(f.Text), "go.work"), string(f.Text))
				require.NotContains(t, string(f.Text), "|\n\n|", "a table has no empty line")
			}
		}
	}
}

// TestTheReadmeQuotesAPathWithASpace, since its commands are copied to a shell.
func TestTheReadmeQuotesAPathWithASpace(t *testing.T) {
	t.Parallel()
	s := service(t)
	s.Path = "../my sources/troupe"
	files, err := s.Files()
	require.NoError(t, err)
	for _, f := range files {
		if f.Path == "README.md" {
			require.Contains(t, string(f.Text), "(cd '../my sources/troupe' && go install ./cmd/troupe)")
			require.Contains(t, string(f.Text), "-replace github.com/troupe-go/troupe='../my sources/troupe' && go mod tidy")
		}
	}
}

func TestTheReadmeStartsTheDemoForAServiceThatReactsToIt(t *testing.T) {
	t.Parallel()
	s := service(t)
	s.Hop, s.From = topics.MustHop("order", "points"), topics.MustHop("order", "payment")
	s.AvroFile = filepath.Join(s.Troupe, "internal/demo/messages/PaymentCharged.avsc")
	files, err := s.Files()
	require.NoError(t, err)
	for _, f := range files {
		if f.Path == "README.md" {
			require.Contains(t, string(f.Text), "\n    troupe dev --demo seat-desk\n")
			require.Contains(t, string(f.Text), "\n    troupe trace o-1\n")
		}
	}
}

func TestTheEventInProtobufHasTheGivenType(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		"cinema.v1.SeatsSold": "\npackage cinema.v1;\n\nmessage SeatsSold {}\n", "SeatsSold": "\nmessage SeatsSold {}\n",
		"": "\npackage booking.seats;\n\nmessage RequestSeats {",
	} {
		s := service(t)
		s.Hop, s.From, s.Event, s.Proto = topics.MustHop("booking", "tickets"), s.Hop, event, true
		files, err := s.Files()
		require.NoError(t, err)
		text := ""
		for _, f := range files {
			if f.Path == "messages/booking_seats.proto" {
				text = string(f.Text)
			}
		}
		require.Contains(t, text, want)
		require.Equal(t, event != "", strings.Contains(text, "Replace this file"), text)
	}
}

func TestFilesThatCannotBeMadeAreNamed(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*scaffold.Service){
		`name "Seats"`:         func(s *scaffold.Service) { s.Name = "Seats" },
		`module "a b"`:         func(s *scaffold.Service) { s.Module = "a b" },
		"no hop":               func(s *scaffold.Service) { s.Hop = topics.Hop{} },
		"another hop of":       func(s *scaffold.Service) { s.From = topics.MustHop("cinema", "seats") },
		"of the flow":          func(s *scaffold.Service) { s.From = s.Hop },
		"an event, but no hop": func(s *scaffold.Service) { s.Event = "Paid" },
		"internal/demo/messages": func(s *scaffold.Service) {
			s.From, s.AvroFile = topics.MustHop("booking", "hall"), "PaymentCharged.avsc"
		},
		"is no checkout of": func(s *scaffold.Service) { s.Troupe = t.TempDir() },
	} {
		s := service(t)
		change(&s)
		_, err := s.Files()
		require.ErrorContains(t, err, text)
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mine"), nil, 0o600))
	require.ErrorContains(t, scaffold.Write(folder, nil), "is not empty (it has mine)")
}

// TestASchemaWithOtherNamesThanAvrosIsRefused: the names are in the code of the service.
func TestASchemaWithOtherNamesThanAvrosIsRefused(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"type": "record", "name": "Paid", "fields": [{"name": "a string\n}\n\nfunc init() { panic(1) }\n\ntype other struct { B", "type": "string"}]}`,
		`{"type": "record", "name": "Paid", "fields": [{"name": "a` + "`" + `", "type": "long"}]}`,
		`{"type": "record", "name": "Paid", "fields": [{"name": "", "type": "long"}]}`,
		`{"type": "record", "name": "Paid", "fields": [{"name": "a b", "type": {"type": "array", "items": "long"}}]}`,
	} {
		s := service(t)
		s.From, s.AvroFile = topics.MustHop("booking", "hall"), filepath.Join(t.TempDir(), "paid.avsc")
		require.NoError(t, os.WriteFile(s.AvroFile, []byte(schema), 0o600))
		_, err := s.Files()
		require.ErrorContains(t, err, "letters, digits and underscores")
	}
}
