package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/topics"
)

// The methods in this file are for the templates.

// Database returns the name of the service's database.
func (s Service) Database() string { return strings.ReplaceAll(s.Name, "-", "_") }

// ShellPath returns Path, quoted for a shell if it needs that.
func (s Service) ShellPath() string { return plain.Argument(s.Path) }

// Reacts reports whether the service reacts to another hop.
func (s Service) Reacts() bool { return !s.From.IsZero() }

// Handles reports whether the service handles commands.
func (s Service) Handles() bool { return s.From.IsZero() }

// Input describes the messages that the service handles, as a part of a sentence.
func (s Service) Input() string {
	if s.Reacts() {
		return "reacts to the events of " + s.From.Events()
	}
	return "handles the commands of " + s.Hop.Commands()
}

// Command returns the name of the command that the service handles.
func (s Service) Command() string { return "Request" + noun(s.Hop) }

// Completed returns the name of the service's success event.
func (s Service) Completed() string { return noun(s.Hop) + "Completed" }

// Refused returns the name of the service's failure event.
func (s Service) Refused() string { return noun(s.Hop) + "Refused" }

// EventType returns the ce_type of the event that the service reacts to.
func (s Service) EventType() string { return cmp.Or(s.Event, noun(s.From)+"Completed") }

// EventName returns the name of the Go type of the event that the service reacts to.
func (s Service) EventName() string { return s.EventType()[strings.LastIndex(s.EventType(), ".")+1:] }

// EventNeedsType reports whether the event's ce_type is not the name of its Go type, so that the type needs a method MessageType.
func (s Service) EventNeedsType() bool { return s.EventName() != s.EventType() }

// Table returns the name of the service's table.
func (s Service) Table() string {
	if s.Handles() {
		return snake(s.Hop.Name()) + "_requests"
	}
	return snake(s.Hop.Name()) + "_entries"
}

// Row returns the name that sqlc gives to the type of a row.
func (s Service) Row() string {
	if s.Handles() {
		return noun(s.Hop) + "Request"
	}
	return noun(s.Hop) + "Entry"
}

// Tx returns the type of a handler's transaction.
func (s Service) Tx() string { return choose(s.SQL, "*sql.Tx", "pgx.Tx") }

// Exec returns the transaction's method that runs a statement.
func (s Service) Exec() string { return choose(s.SQL, "ExecContext", "Exec") }

// HandlerPackage returns the package that registers handlers with a transaction of type Tx.
func (s Service) HandlerPackage() string { return choose(s.SQL, "sqltx", "participant") }

// TestArgument returns the argument of the tests' function service: t, if it starts a registry.
func (s Service) TestArgument() string { return choose(s.Codec(), "t", "") }

// Body returns a message's type in a handler.
func (s Service) Body(message string) string {
	return choose(s.inProto(message), "*messages."+message, message)
}

// Literal returns a message's composite literal up to its brace.
func (s Service) Literal(message string) string {
	return choose(s.inProto(message), "&messages."+message, message)
}

// inProto reports whether a message has its Go type from a .proto file. The event of another hop may be Avro instead.
func (s Service) inProto(message string) bool {
	return s.Proto && (s.AvroFile == "" || message != s.EventName())
}

// Field returns the name of a message's field in Go.
func (s Service) Field(name string) string {
	return choose(s.Proto && name == "ID", "Id", name)
}

// Get returns the selector that reads a message's field.
func (s Service) Get(name string) string {
	return choose(s.Proto, "Get"+s.Field(name)+"()", name)
}

// Messages returns the names of the messages in Protobuf that it reads or writes.
func (s Service) Messages() []string {
	if s.Handles() {
		return []string{s.Command(), s.Completed(), s.Refused()}
	}
	if s.AvroFile != "" {
		return []string{s.Completed()}
	}
	return []string{s.EventName(), s.Completed()}
}

// TroupeModule returns the path of Troupe's module.
func (Service) TroupeModule() string { return module }

// Codec reports whether some messages have a schema in a registry.
func (s Service) Codec() bool { return s.Proto || s.AvroFile != "" }

// OfDemo reports whether the event is one of the demo's, so that troupe dev --demo runs the service that sends it.
func (s Service) OfDemo() bool {
	return s.AvroFile != "" && s.From.Flow() == "order" && strings.HasPrefix(s.Event, "troupe.order.")
}

var eventRule = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)*[A-Z][A-Za-z0-9_]*$`)

func (s Service) checkEvent() error {
	switch {
	case s.Handles() && s.Event != "":
		return errors.New("an event, but no hop that it reacts to: set both or none")
	case s.Handles() && s.AvroFile != "":
		return errors.New("an Avro schema of an event, but no hop that it reacts to: set both or none")
	case s.Handles():
		return nil
	case !eventRule.MatchString(s.EventType()):
		return fmt.Errorf("event %q: want the type of a message whose last part begins with a capital letter, such as shop.PaymentCharged", s.Event)
	case s.EventName() == s.Completed():
		return fmt.Errorf("event %s: the service's own event has the same name", s.Event)
	}
	return nil
}

// noun returns a hop's name as a part of Go names.
func noun(h topics.Hop) string { return camel(snake(h.Name())) }

// camel returns a name in snake case in camel case.
func camel(name string) string {
	var b strings.Builder
	for _, part := range strings.Split(name, "_") {
		if part == "id" { // as sqlc writes it
			part = "ID"
		}
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// snake returns a name of a flow or a hop as an identifier.
func snake(name string) string {
	if name[0] >= '0' && name[0] <= '9' {
		name = "hop_" + name
	}
	return strings.ReplaceAll(name, "-", "_")
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
