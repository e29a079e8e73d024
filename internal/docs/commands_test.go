package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/commands"
)

// ofTheReader lists words of go test that are placeholders for the reader's own.
var ofTheReader = map[string]string{
	"README.md:go test ./...":       "in the new service's folder; here .ci/run runs it",
	"CONTRIBUTING.md:-run TestName": "stands for a test's name",
}

// TestTheGoCommandsInDocumentsAreThere checks packages and folders, the tests and benchmarks that the commands select, and the
// flags of our programs. .ci/run runs benchmarks and programs, with --quick if they take minutes.
func TestTheGoCommandsInDocumentsAreThere(t *testing.T) {
	t.Parallel()
	all, err := commands.Read(root)
	require.NoError(t, err)
	checked := 0
	for _, c := range all {
		if c.Prose && len(c.Args) < 3 {
			continue
		}
		var err error
		switch {
		case c.Script:
			_, err = os.Stat(filepath.Join(root, c.Args[0]))
		case c.Args[0] != "go":
			continue
		case c.Args[1] == "run":
			err = goRun(c)
		case c.Args[1] == "test":
			err = goTest(c)
		case !slices.Contains([]string{"build", "install", "mod", "doc", "vet", "get", "generate"}, c.Args[1]):
			err = fmt.Errorf("go has no %s, or this test does not know it", c.Args[1])
		}
		checked++
		if err != nil {
			t.Errorf("%s\n\t%v\n\tmend the document", c, err)
		}
	}
	require.Greater(t, checked, 40)
}

// goRun returns an error that names a folder or flag that does not exist.
func goRun(c commands.Command) error {
	args, from := c.Args[2:], root
	if len(args) > 2 && args[0] == "-C" {
		from, args = filepath.Join(root, args[1]), args[2:]
	}
	if args[0] == "." { // the reader's own service, which troupe init made
		return nil
	}
	folder := filepath.Join(from, args[0])
	declared, err := flagsIn(folder)
	if err != nil {
		return err
	}
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if _, there := declared[name]; strings.HasPrefix(arg, "-") && !there {
			return fmt.Errorf("%s has no flag --%s, but %s", args[0], name, strings.Join(slices.Sorted(maps.Keys(declared)), ", "))
		}
	}
	return nil
}

// flagsIn returns the flags that a program or its tests declare with the package flag, and whether each takes a value.
func flagsIn(folder string) (declared map[string]bool, err error) {
	declared = make(map[string]bool)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: no program is there", filepath.Base(folder)))
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := function.X.(*ast.Ident); !ok || of.Name != "flag" {
				return true
			}
			for _, arg := range call.Args[:min(2, len(call.Args))] { // the name is the second argument of flag.Var
				if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
					name, _ := strconv.Unquote(text.Value)
					declared[name] = !strings.HasPrefix(function.Sel.Name, "Bool")
					break
				}
			}
			return true
		})
	}
	return declared, nil
}

// testFlags lists the flags of go test that documents use, and whether each takes a value.
var testFlags = map[string]bool{
	"-v": false, "-short": false, "-race": false, "-benchmem": false, "-run": true, "-bench": true, "-benchtime": true, "-count": true, "-timeout": true,
	"-cpu": true, "-p": true, "-tags": true, "-fuzz": true,
}

// goTest returns an error that names a package, test or benchmark that does not exist.
func goTest(c commands.Command) error {
	packages, chosen := []string{}, map[string]string{}
	for n := 2; n < len(c.Args); n++ {
		name, value, given := strings.Cut(c.Args[n], "=")
		takes, known := testFlags[name]
		if !known {
			takes, known = declaredBy(packages, name)
		}
		switch {
		case !strings.HasPrefix(name, "-"):
			packages = append(packages, name)
			continue
		case !known:
			return fmt.Errorf("go test has no %s, or this test does not know it", name)
		case takes && !given && n+1 < len(c.Args):
			n++
			value = c.Args[n]
		case takes && !given:
			return fmt.Errorf("%s wants a value", name)
		}
		if ofTheReader[c.Page+":"+name+" "+value] == "" {
			chosen[name] = value
		}
	}
	if ofTheReader[c.Page+":go test "+strings.Join(packages, " ")] != "" {
		return nil
	}
	var functions []string
	for _, one := range packages {
		in, err := testsIn(one)
		if err != nil {
			return err
		}
		functions = append(functions, in...)
	}
	for _, flag := range []string{"-run", "-bench"} {
		// The part after a slash selects subtests; these patterns select nothing on purpose.
		pattern, _, _ := strings.Cut(chosen[flag], "/")
		if pattern == "" || pattern == "^$" || pattern == "xxx" {
			continue
		}
		expression, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		prefix := map[string]string{"-run": "Test", "-bench": "Benchmark"}[flag]
		if !slices.ContainsFunc(functions, func(f string) bool {
			return (strings.HasPrefix(f, prefix) || flag == "-run" && strings.HasPrefix(f, "Example")) && expression.MatchString(f)
		}) {
			return fmt.Errorf("%s %s chooses nothing in %s", flag, pattern, strings.Join(packages, " "))
		}
	}
	return nil
}

// declaredBy searches the tests of packages for a flag.
func declaredBy(packages []string, name string) (takes, known bool) {
	for _, one := range packages {
		declared, err := flagsIn(filepath.Join(root, strings.TrimSuffix(one, "/...")))
		if takes, known = declared[strings.TrimLeft(name, "-")]; err == nil && known {
			return takes, true
		}
	}
	return false, false
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`)

// testsIn returns the names of tests and benchmarks in a package, and with /... below it too.
func testsIn(path string) (names []string, err error) {
	folder, all := strings.CutSuffix(path, "/...")
	err = filepath.WalkDir(filepath.Join(root, folder), func(file string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: no package is there", path)
		case d.IsDir() && !all && file != filepath.Join(root, folder):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
		return err
	})
	return names, err
}

// elsewhere lists flags that no reference of ours has, each with its program.
var elsewhere = map[string]string{
	"wait": "docker compose up", "profile": "docker compose", "build": "docker compose up", "volumes": "docker compose down",
	"dir": "internal/devstack/apachekafka/apachekafka.sh", "port": "internal/devstack/apachekafka/apachekafka.sh",
	"nodes": "internal/devstack/apachekafka/apachekafka.sh", "node": "internal/devstack/apachekafka/apachekafka.sh",
	"core": ".ci/versions", "tables": ".ci/versions",
	"create":    "kafka-topics.sh",
	"broker-id": "kafka-transactions.sh", "partition": "kafka-transactions.sh", "start-offset": "kafka-transactions.sh",
	"add": "kafka-acls.sh", "allow-principal": "kafka-acls.sh", "operation": "kafka-acls.sh", "resource-pattern-type": "kafka-acls.sh",
	"transactional-id": "kafka-acls.sh", "bootstrap-server": "kafka-acls.sh", "command-config": "kafka-acls.sh",
	"from-file": "kubectl", "for": "kubectl",
	"bundle": "cosign", "certificate-identity-regexp": "cosign", "certificate-oidc-issuer": "cosign",
	"hostname": "aws", "region": "aws", "username": "aws", "format": "aws", "resource-type": "az", "query": "az",
	"check": "sha256sum", "ignore-missing": "sha256sum", "repo": "gh", "all": ".ci/release", "base": "internal/apicheck",
	"debezium": "outbox-relay check, which is not a setting",
	"print":    "outbox-relay migrate, which is not a setting",
	"help":     "of all programs",
}

// TestEveryFlagThatADocumentNamesIsThere checks flags anywhere, also in a sentence without their command. It takes the flags from
// the references, which are made from the programs, and from the benchmarks' source.
func TestEveryFlagThatADocumentNamesIsThere(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, page := range []string{"cli-reference.md", "relay-reference.md", "ambassador-reference.md"} {
		for _, m := range regexp.MustCompile("`(?:--)?([a-z][a-z0-9-]+)[` ]").FindAllStringSubmatch(read(t, "docs/"+page), -1) {
			known[m[1]] = true
		}
	}
	programs, err := filepath.Glob(filepath.Join(root, "bench", "*", "main.go"))
	require.NoError(t, err)
	for _, program := range programs {
		declared, err := flagsIn(filepath.Dir(program))
		require.NoError(t, err)
		for name := range declared {
			known[name] = true
		}
	}
	pages, err := commands.Pages(root)
	require.NoError(t, err)
	for _, page := range pages {
		n := 0
		for line := range strings.Lines(read(t, page)) {
			n++
			for _, m := range regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]+)`).FindAllStringSubmatch(line, -1) {
				if !known[m[1]] && elsewhere[m[1]] == "" {
					t.Errorf("%s:%d: --%s is no flag of a program of ours: mend the document, or name the program in elsewhere", page, n, m[1])
				}
			}
		}
	}
}
