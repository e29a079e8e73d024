package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A source is a file of the main module, with its path from the module's root.
type source struct {
	Path, Folder string
	Text         string
}

func (s source) is(extension string) bool { return strings.HasSuffix(s.Path, extension) }
func (s source) test() bool               { return s.is("_test.go") }

// moduleRoot is the nearest folder above the working directory that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above this folder")
		}
		dir = parent
	}
}

// sources reads the Go, SQL and Markdown files of the main module. Nested modules, testdata and hidden folders are left out.
func sources(root string) ([]source, error) {
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if nested := err == nil; nested || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || rel == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".sql", ".md":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		all = append(all, source{Path: filepath.ToSlash(rel), Folder: filepath.ToSlash(filepath.Dir(rel)), Text: string(text)})
		return err
	})
	return all, err
}
