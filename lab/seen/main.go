// Command seen shows the signs of a fault that an operator sees, and after how long: three replicas
// of a service on a real ensemble, scraped by a real Prometheus with the alerts of
// contrib/zklockprom. For each fault it prints the metric, the alert and the span that show it.
//
//	cd lab/seen && go run . -out results.md
//
// It requires ZooKeeper and Prometheus (scripts/setup zookeeper prometheus), and some ten minutes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

// timeout is the replicas' session timeout.
const timeout = 10 * time.Second

func main() {
	log.SetFlags(log.Ltime)
	if len(os.Args) == 5 && os.Args[1] == "replica" {
		log.Fatal(replica(os.Args[2], os.Args[3], os.Args[4]))
	}
	out := flag.String("out", "", "the `FILE` that gets the table; otherwise it is printed")
	flag.Parse()
	table, err := run()
	if table != nil {
		if *out == "" {
			fmt.Print(table)
		} else if failed := os.WriteFile(*out, table.Bytes(), 0o644); failed != nil {
			log.Fatal(failed)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run injects one fault after the other. It returns the table so far, and the signs that did not
// appear.
func run() (*bytes.Buffer, error) {
	w, err := newWorld()
	if err != nil {
		return nil, err
	}
	defer w.close()
	table := new(bytes.Buffer)
	fmt.Fprintf(table, "# What an operator sees of a fault\n\nThree replicas, session timeout %v, ZooKeeper %s in an ensemble of three, Prometheus %s; scraped and evaluated each second. "+
		"Written by `make nightly PART=seen`.\n\nThe times are from the fault on. A span is there when its hold has ended.\n\n| fault at the leader | what shows it | after |\n|---|---|---|\n",
		timeout, w.zookeeper, w.prometheusVersion)
	var missing int
	for _, f := range faults {
		log.Printf("%s", f.name)
		name := f.name
		signs, err := w.inject(f)
		if err != nil {
			return table, err
		}
		for _, s := range signs {
			after := s.after.Round(100 * time.Millisecond).String()
			if s.after < 0 {
				after = "**not seen**"
				missing++
			}
			fmt.Fprintf(table, "| %s | %s | %s |\n", name, s.what, after)
			log.Printf("\t%s: %s", s.what, after)
			name = ""
		}
	}
	if missing > 0 {
		return table, fmt.Errorf("%d were not seen", missing)
	}
	return table, nil
}
