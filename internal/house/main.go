// Command house prints how large the module is and how plainly it is written: lines, files, public packages, exported
// names, and, with their places, phrases that the project does not use. Its test fails when there is such a phrase.
//
//	go run ./internal/house
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
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
	size, err := measure(root, files)
	if err != nil {
		return err
	}
	fmt.Print(size)
	fmt.Printf("\nphrases to avoid       %d\n", len(found))
	for _, p := range found {
		fmt.Println(p)
	}
	return nil
}
