package avsc_test

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/avsc"
)

func ExampleCheck() {
	before := avsc.Version{Label: "version 1", Avsc: `{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "id", "type": "string"},
		{"name": "grams", "type": "long"}]}`}
	next := avsc.Version{Label: "Parcel.avsc", Avsc: `{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "id", "type": "string"},
		{"name": "note", "type": "string"}]}`}
	problems, err := avsc.Check(avsc.FullTransitive, next, before)
	for _, p := range problems {
		fmt.Printf("%s, %s: %s\n  %s\n", p.Direction, p.Path, p.Reason, p.Remedy)
	}
	fmt.Println(err)
	// Output:
	// BACKWARD, note: it is new and has no default for messages that do not have it
	//   give it one, such as "default": ""
	// FORWARD, grams: it was removed, and readers have no default for it
	//   keep it, and remove it only after a version in which it has a default
	// <nil>
}

func ExampleDiff() {
	before := avsc.Version{Label: "version 1", Avsc: `{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "grams", "type": "int"}]}`}
	next := avsc.Version{Label: "Parcel.avsc", Avsc: `{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "grams", "type": "long"},
		{"name": "note", "type": ["null", "string"], "default": null}]}`}
	changes, err := avsc.Diff(before, next)
	for _, c := range changes {
		fmt.Println(c)
	}
	fmt.Println(err)
	// Output:
	// grams: type int became long
	// note: added, union of null, string, default null
	// <nil>
}
