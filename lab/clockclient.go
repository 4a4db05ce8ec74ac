//go:build labclock

package main

import "time"

// A client with a jumping clock is built with this tag, on a standard library that has this
// function (see clockClient).
func init() { setClock = time.LabSetClock }
