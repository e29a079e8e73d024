package scaffold

import (
	"context"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/troupe-go/troupe/topics"
)

// Protos returns the names of the service's .proto files.
func (s Service) Protos() []string {
	if s.Handles() || s.AvroFile != "" {
		return []string{protoName(s.Hop)}
	}
	return []string{protoName(s.From), protoName(s.Hop)}
}

func protoName(h topics.Hop) string { return snake(h.Flow()) + "_" + snake(h.Name()) + ".proto" }

// protobuf returns the .proto files, and the Go code that protoc-gen-go generates from them.
func (s Service) protobuf() (files []File, err error) {
	all := map[string]string{protoName(s.Hop): protoText(s.Hop, s.Handles())}
	switch {
	case s.Handles() || s.AvroFile != "":
	case s.Event != "":
		all[protoName(s.From)] = s.eventText()
	default:
		all[protoName(s.From)] = protoText(s.From, true) // as the other service has it, if it handles commands
	}
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(all)}}
	compiled, err := compiler.Compile(context.Background(), s.Protos()...)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: s.Protos()}
	parameters := []string{"paths=source_relative"}
	for _, f := range compiled {
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(f))
		parameters = append(parameters, "M"+f.Path()+"="+s.Module+"/messages")
	}
	parameter := strings.Join(parameters, ",")
	request.Parameter = &parameter
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	for _, f := range plugin.Files {
		internal_gengo.GenerateFile(plugin, f)
		files = append(files, File{"messages/" + f.Desc.Path(), []byte(all[f.Desc.Path()])})
	}
	response := plugin.Response()
	if response.GetError() != "" {
		return nil, fmt.Errorf("messages: %s", response.GetError())
	}
	for _, f := range response.GetFile() {
		files = append(files, File{"messages/" + f.GetName(), []byte(f.GetContent())})
	}
	return files, nil
}

// protoText returns the .proto file of a hop: its command and its answers if it handles commands, else its event.
func protoText(h topics.Hop, handles bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// The messages of %s.\nsyntax = \"proto3\";\n\npackage %s.%s;\n", h, snake(h.Flow()), snake(h.Name()))
	message := func(name string, fields ...string) {
		fmt.Fprintf(&b, "\nmessage %s {\n", name)
		for i, f := range fields {
			fmt.Fprintf(&b, "  %s = %d;\n", f, i+1)
		}
		b.WriteString("}\n")
	}
	s := Service{Hop: h}
	if handles {
		message(s.Command(), "string id", "int64 amount")
	}
	message(s.Completed(), "string id")
	if handles {
		message(s.Refused(), "string reason")
	}
	return b.String()
}

// eventText returns a .proto file with the other hop's event, whose fields are not known.
func (s Service) eventText() string {
	in := strings.TrimSuffix(strings.TrimSuffix(s.Event, s.EventName()), ".")
	if in != "" {
		in = "package " + in + ";\n\n"
	}
	return fmt.Sprintf(`// The event of %s to which the service reacts. Replace this file by the other service's own before you use a registry that both share:
// the service registers the schema.
syntax = "proto3";

%smessage %s {}
`, s.From, in, s.EventName())
}
