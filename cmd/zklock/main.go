// Command zklock runs commands under ZooKeeper locks. The code is in internal/command.
package main

import "github.com/zklock/zklock/cmd/zklock/internal/command"

func main() { command.Main() }
