// Command demo-inventory is the inventory service of the order flow. Its --help lists the settings.
package main

import (
	"os"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
)

func main() { os.Exit(demo.Main("inventory", inventory.Run)) }
