// Brokers of franz-go's kfake: one at each port given, until it is killed. tests/support/foreign_brokers.py starts it.
package main

import (
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	var ports []int
	for _, word := range os.Args[1:] {
		port, err := strconv.Atoi(word)
		if err != nil {
			log.Fatal(err)
		}
		ports = append(ports, port)
	}
	if _, err := kfake.NewCluster(
		kfake.Ports(ports...), kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	); err != nil {
		log.Fatal(err)
	}
	select {}
}
