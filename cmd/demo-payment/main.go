// Command demo-payment is the payment service of the order flow. Its --help lists the settings.
package main

import (
	"os"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/payment"
)

func main() { os.Exit(demo.Main("payment", payment.Run)) }
