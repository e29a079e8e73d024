// Command house prints how large the module is and how plainly it is written: lines, files, public packages, exported
// names, and phrases that the project does not use. Its test fails when a folder has more of these phrases than
// phrases.txt allows it.
//
//	go run ./internal/house            # the whole report
//	go run ./internal/house -phrases relay   # each phrase of one folder, with its place
//	go run ./internal/house -lower     # lowers phrases.txt to the counts of today
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
)

func main() {
	phrases := flag.String("phrases", "", "print each phrase in this `folder`")
	lower := flag.Bool("lower", false, "lower the allowance of each folder to its count")
	flag.Parse()
	if err := run(*phrases, *lower); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string, lower bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	files, err := sources(root)
	if err != nil {
		return err
	}
	found, err := findPhrases(files)
	if err != nil {
		return err
	}
	switch {
	case folder != "":
		for _, p := range found {
			if p.Folder == folder {
				fmt.Printf("%s:%d: %s: %s\n", p.File, p.Line, p.Kind, p.Text)
			}
		}
		return nil
	case lower:
		allowed, err := readAllowance(root)
		if err != nil {
			return err
		}
		return writeAllowance(root, lowered(allowed, countByFolder(found)))
	}
	size, err := measure(root, files)
	if err != nil {
		return err
	}
	fmt.Print(size)
	kinds := map[string]int{}
	for _, p := range found {
		kinds[p.Kind]++
	}
	fmt.Printf("\nphrases to avoid       %d\n", len(found))
	for _, k := range slices.SortedFunc(maps.Keys(kinds), func(a, b string) int { return cmp.Compare(kinds[b], kinds[a]) }) {
		fmt.Printf("  %-20s %d\n", k, kinds[k])
	}
	return nil
}
