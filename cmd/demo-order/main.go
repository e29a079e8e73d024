// Command demo-order is the order service of the order flow. Its --help lists the settings.
package main

import (
	"os"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/order"
)

func main() { os.Exit(demo.Main("order", order.Run)) }
