package short_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/short"
)

const root = "../.."

// TestTheTestsOfAShortRunExist looks for each name that a package gives to Only among its tests: a wrong name would select nothing.
func TestTheTestsOfAShortRunExist(t *testing.T) {
	t.Parallel()
	selected := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "short.Only(") {
			return err
		}
		names := selections(t, path)
		if len(names) == 0 {
			return nil
		}
		tests := testsIn(t, filepath.Dir(path))
		for _, name := range names {
			require.Contains(t, tests, name, "%s: short.Only: there is no such test", path)
			selected++
		}
		return nil
	}))
	require.Greater(t, selected, 20)
}

// selections returns the arguments of the calls of Only in a file.
func selections(t *testing.T, path string) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Only" {
			if of, ok := f.X.(*ast.Ident); ok && of.Name == "short" {
				for _, arg := range call.Args {
					name, err := strconv.Unquote(arg.(*ast.BasicLit).Value)
					require.NoError(t, err)
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// testsIn returns the names of the tests and examples of a folder.
func testsIn(t *testing.T, folder string) (tests []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Example")) {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	return tests
}

func TestAPackageThatTheVariableNamesRunsItsSelection(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short each package does")
	}
	for value, want := range map[string]bool{"": false, "participant internal/short": true, "internal/shorter short/internal": false} {
		t.Setenv(short.Variable, value)
		require.Equal(t, want, short.Run(), value)
	}
}
