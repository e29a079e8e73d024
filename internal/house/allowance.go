package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const allowanceFile = "internal/house/phrases.txt"

// readAllowance reads how many phrases each folder may have; a folder that is not listed may have none.
func readAllowance(root string) (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(root, allowanceFile))
	if err != nil {
		return nil, err
	}
	allowed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var folder string
		var n int
		if _, err := fmt.Sscan(line, &folder, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", allowanceFile, line, err)
		}
		allowed[folder] = n
	}
	return allowed, nil
}

// writeAllowance writes the folders that may have phrases still, in order of their names.
func writeAllowance(root string, allowed map[string]int) error {
	var b strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(allowed)) {
		if allowed[folder] > 0 {
			fmt.Fprintf(&b, "%s %d\n", folder, allowed[folder])
		}
	}
	return os.WriteFile(filepath.Join(root, allowanceFile), []byte(b.String()), 0o644)
}

func countByFolder(found []phrase) map[string]int {
	counts := map[string]int{}
	for _, p := range found {
		counts[p.Folder]++
	}
	return counts
}

// lowered returns the allowance with each count lowered to the one found. It never raises one.
func lowered(allowed, counts map[string]int) map[string]int {
	next := map[string]int{}
	for folder, n := range allowed {
		next[folder] = min(n, counts[folder])
	}
	return next
}
