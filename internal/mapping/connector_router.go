package mapping

import (
	"maps"
	"slices"
	"strings"
)

const routerClass = "io.debezium.transforms.outbox.EventRouter"

func (r *reading) transforms() {
	found := false
	for name := range strings.SplitSeq(r.take("transforms"), ",") {
		name = strings.TrimSpace(name)
		prefix := "transforms." + name + "."
		class := r.take(prefix + "type")
		switch {
		case name == "":
		case class != routerClass:
			r.note("transforms."+name, Differs, "only EventRouter is known: what this transform does is not done")
			r.skip(prefix)
		case found:
			r.note("transforms."+name, Differs, "a second EventRouter: only the first is read; give its table a relay of its own")
			r.skip(prefix)
		default:
			found = true
			r.router(prefix)
		}
	}
	if !found {
		r.note("transforms", Stops, "none of them is "+routerClass+": this connector is not an outbox's")
	}
}

func (r *reading) skip(prefix string) {
	for name := range r.options {
		if strings.HasPrefix(name, prefix) {
			r.done[name] = true
		}
	}
}

// ours lists the options of Config that Debezium does not have.
var ours = []string{"headers", "service", "key.format", "payload.format", "content.type", "table.field.position", "table.field.xid"}

func isDebeziums(option string) bool {
	return former[option] != "" || option == onMissing || slices.Contains(optionNames(), option) && !slices.Contains(ours, option)
}

func (r *reading) router(prefix string) {
	options := r.c.Mapping.Options()
	for _, name := range slices.Sorted(maps.Keys(r.options)) {
		option, here := strings.CutPrefix(name, prefix)
		if !here || r.done[name] {
			continue
		}
		switch text := routerNotes[option]; {
		case text != "":
			r.done[name] = true
			r.note(name, Moot, text)
		case !isDebeziums(option):
			r.done[name] = true
			r.note(name, Moot, "EventRouter has no such option either, and passes over it")
		default:
			options[option] = r.take(name)
		}
	}
	cfg, err := FromOptions(options)
	if err == nil {
		_, err = New(cfg)
	}
	if err != nil {
		r.note(strings.TrimSuffix(prefix, "."), Stops, strings.TrimPrefix(err.Error(), "mapping: "))
		return
	}
	r.c.Mapping = cfg
	r.differences(prefix)
}

// differences notes effects that differ although the options are the same.
func (r *reading) differences(prefix string) {
	cfg := r.c.Mapping
	if cfg.OnUpdate != "" {
		r.note(prefix+"table.op.invalid.behavior", Moot, "it counts with a publication that has updates; the relay's own has inserts only")
	}
	if cfg.SchemaVersion != "" {
		r.note(prefix+"table.field.event.schema.version", Moot, "a message without Connect's schema does not show it, here as there; "+
			"place the column as a header to send it")
	}
	if cfg.ExpandJSON {
		r.note(prefix+"table.expand.json.payload", Differs, "the document is the payload itself: arrays of different types, which EventRouter "+
			"leaves as text, are expanded, and members that only some items of an array have are not added to the others as null")
	}
}
