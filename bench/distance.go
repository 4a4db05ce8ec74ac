package main

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// away puts a proxy before each of the servers at addrs, which are separated by commas. A proxy
// delays each byte by half of roundTrip, in both directions. away returns the proxies' addresses.
func away(addrs string, roundTrip time.Duration) (proxies string, stop func() error, err error) {
	stop = func() error { return nil }
	if roundTrip == 0 {
		return addrs, stop, nil
	}
	var all []string
	var stops []func() error
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	for _, addr := range strings.Split(addrs, ",") {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, errors.Join(err, stop())
		}
		stops = append(stops, ln.Close)
		all = append(all, ln.Addr().String())
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go bridge(c, addr, roundTrip/2)
			}
		}()
	}
	return strings.Join(all, ","), stop, nil
}

// bridge carries the bytes of a connection until one side ends it.
func bridge(client net.Conn, addr string, way time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() { carry(server, client, way) })
	both.Go(func() { carry(client, server, way) })
	both.Wait()
}

// carry copies from one connection to the other, each piece delayed by d. A delayed piece does not
// delay the next one any further.
func carry(to, from net.Conn, d time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	onTheWay := make(chan piece, 4096)
	var written sync.WaitGroup
	written.Go(func() {
		for p := range onTheWay {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if n > 0 {
			onTheWay <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(d)}
		}
		if err != nil {
			break
		}
	}
	close(onTheWay)
	written.Wait()
}
