// The command lab puts the locks that people compare to the same faults, on real servers that it starts, and counts what came of it.
package main

func main() {}
