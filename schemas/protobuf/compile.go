package protobuf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/payload"
)

// Limits on a schema.
const (
	maxFiles  = 100
	maxSchema = 1 << 20 // bytes of a file
	maxTypes  = 20_000  // statements and blocks of all files
	maxBraces = 50      // levels of blocks
)

// maxTime is the longest time that a compilation may take.
var maxTime = 5 * time.Second

// ownName is the path of a schema of the registry, which has none there.
const ownName = "troupe_schema_of_the_registry.proto"

// compile compiles a schema.
func compile(s payload.Source) (protoreflect.FileDescriptor, error) {
	files := map[string]string{ownName: s.Text}
	types := 0
	for name, text := range s.Imports {
		files[name] = text
	}
	for name, text := range files {
		n, err := measure(text)
		if types += n; err == nil && types > maxTypes {
			err = fmt.Errorf("more than %d fields and types", maxTypes)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}),
		MaxParallelism: 1,
	}
	compiled, err := compiler.Compile(ctx, ownName)
	if err != nil {
		return nil, fmt.Errorf("no Protobuf schema: %w", err)
	}
	if compiled[0].Messages().Len() == 0 {
		return nil, errors.New("the Protobuf schema has no message")
	}
	return compiled[0], nil
}

// measure counts a text's statements and blocks, and refuses one whose blocks are too deep for the compiler's stack.
func measure(text string) (types int, err error) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case ';':
			types++
		case '{', '[', '<', '(':
			types++
			if depth++; depth > maxBraces {
				return 0, fmt.Errorf("more than %d levels", maxBraces)
			}
		case '}', ']', '>', ')':
			depth = max(0, depth-1)
		}
	}
	return types, nil
}

// collect reads the file at path with all that it imports, each after its own imports. above are the files that import it.
func collect(files fs.FS, path string, above []string) (all []payload.File, err error) {
	if len(above) > maxFiles {
		return nil, fmt.Errorf("%s: imports are more than %d levels deep, or in a circle", path, maxFiles)
	}
	text, err := fs.ReadFile(files, path)
	if errors.Is(err, fs.ErrNotExist) && path == personalPath {
		text, err = []byte(personalText), nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) > maxSchema {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, len(text), maxSchema)
	}
	imports, err := importsOf(path, text)
	if err != nil {
		return nil, err
	}
	own := payload.File{Name: path, Text: string(text)}
	known := make(map[string]bool)
	for _, name := range imports {
		if strings.HasPrefix(name, "google/protobuf/") {
			continue
		}
		own.Imports = append(own.Imports, name)
		inner, err := collect(files, name, append(above, path))
		if err != nil {
			return nil, fmt.Errorf("%s imports %w", path, err)
		}
		for _, f := range inner {
			if !known[f.Name] {
				known[f.Name] = true
				all = append(all, f)
			}
		}
		if len(all) > maxFiles {
			return nil, fmt.Errorf("%s imports more than %d files", path, maxFiles)
		}
	}
	return append(all, own), nil
}

func importsOf(path string, text []byte) ([]string, error) {
	if _, err := measure(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	handler := reporter.NewHandler(nil)
	parsed, err := parser.Parse(path, bytes.NewReader(text), handler)
	if err != nil {
		return nil, err
	}
	result, err := parser.ResultFromAST(parsed, false, handler)
	if err != nil {
		return nil, err
	}
	return result.FileDescriptorProto().GetDependency(), nil
}
