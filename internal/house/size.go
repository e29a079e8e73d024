package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A size is the module in numbers. Lines are those of Go files, tests left out.
type size struct {
	Lines, Files, Longest, Median int
	LongestFile                   string
	Packages                      int            // packages that a user can import
	Exported                      map[string]int // exported names of each of them: types, functions, methods, constants, variables
}

func measure(_ string, files []source) (size, error) {
	s := size{Exported: map[string]int{}}
	var lengths []int
	for _, f := range files {
		if !f.is(".go") || f.test() {
			continue
		}
		n := strings.Count(f.Text, "\n")
		lengths = append(lengths, n)
		s.Lines += n
		if n > s.Longest {
			s.Longest, s.LongestFile = n, f.Path
		}
		if private(f.Folder) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Path, f.Text, 0)
		if err != nil {
			return s, err
		}
		if file.Name.Name != "main" {
			s.Exported[f.Folder] += exported(file)
		}
	}
	slices.Sort(lengths)
	s.Files, s.Packages = len(lengths), len(s.Exported)
	s.Median = lengths[len(lengths)/2]
	return s, nil
}

// private reports whether users cannot import a folder, or are not meant to: examples.
func private(folder string) bool {
	for part := range strings.SplitSeq(folder, "/") {
		switch part {
		case "internal", "cmd", "examples":
			return true
		}
	}
	return false
}

func exported(file *ast.File) int {
	n := 0
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
				n++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// receiver returns the name of a method's type: T of T, *T and T[K].
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func (s size) String() string {
	var b strings.Builder
	names, folders := 0, make([]string, 0, len(s.Exported))
	for f, n := range s.Exported {
		names += n
		folders = append(folders, f)
	}
	slices.SortFunc(folders, func(a, b string) int { return s.Exported[b] - s.Exported[a] })
	fmt.Fprintf(&b, "lines without tests    %d\nfiles                  %d, median %d lines, longest %d (%s)\n", s.Lines, s.Files, s.Median, s.Longest, s.LongestFile)
	fmt.Fprintf(&b, "public packages        %d\nexported names         %d\n", s.Packages, names)
	for _, f := range folders {
		fmt.Fprintf(&b, "  %-30s %d\n", f, s.Exported[f])
	}
	return b.String()
}
