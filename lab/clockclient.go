//go:build labclock

package main

import "time"

// A client of a jumping clock's is built with the tag, on a standard library that has this function (see clockClient).
func init() { setClock = time.LabSetClock }
