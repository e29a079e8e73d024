// Command demo-shipping is the shipping service of the order flow. Its --help lists the settings.
package main

import (
	"os"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/shipping"
)

func main() { os.Exit(demo.Main("shipping", shipping.Run)) }
