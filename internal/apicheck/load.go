package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// load type-checks the packages of the module in folder that users can import.
func load(folder string) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Dir:  folder,
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedModule,
	}, "./...")
	if err != nil {
		return nil, err
	}
	var m apidiff.Module
	for _, p := range loaded {
		if p.Name == "main" || p.Module == nil || notPublic(strings.TrimPrefix(p.PkgPath, p.Module.Path)) {
			continue
		}
		for _, e := range p.Errors {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.PkgPath, e))
		}
		m.Path = p.Module.Path
		m.Packages = append(m.Packages, p.Types)
	}
	if err == nil && len(m.Packages) == 0 {
		err = fmt.Errorf("%s has no public package", folder)
	}
	return &m, err
}

// notPublic reports whether users cannot import a package, or should not: examples.
func notPublic(folder string) bool {
	return slices.ContainsFunc(strings.Split(folder, "/"), func(part string) bool {
		return part == "internal" || part == "cmd" || part == "examples"
	})
}
