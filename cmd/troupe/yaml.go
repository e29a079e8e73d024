package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// writeYAML prints a value by its JSON, so that both have the same names in the same order.
func writeYAML(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // a position is not a float
	node, err := yamlOf(dec)
	if err != nil {
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return err
	}
	return enc.Close()
}

// yamlOf reads the next value of well-formed JSON.
func yamlOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch is := token.(type) {
	case json.Delim:
		return yamlMany(dec, is)
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: is}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: is.String()}, nil // in JSON's notation: YAML reads the same number
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(is)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// yamlMany reads the elements of an array or object.
func yamlMany(dec *json.Decoder, open json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if open == '{' {
		n.Kind = yaml.MappingNode
	}
	for dec.More() {
		if open == '{' { // keys are strings
			key, err := yamlOf(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, key)
		}
		value, err := yamlOf(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, value)
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle // [] and {}
	}
	_, err := dec.Token() // the closing bracket
	return n, err
}
