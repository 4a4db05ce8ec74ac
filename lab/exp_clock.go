package main

import (
	"strconv"
	"time"
)

func init() {
	experiment(Experiment{
		Name: "client-clock", Title: "The clock jumps on a client", ClientClock: true,
		Says: "A holds and B waits. The wall clock of one of them jumps by an hour: A's ahead, A's back, B's ahead, B's back, in turn. After twice the lock's time, or just before its end if nothing extends it, A writes if it believes that it holds, and releases. (Their `time.Now` is of a standard library with an offset in it. Its monotonic clock goes on, as the kernel's does.)",
		Skip: func(s *System) string {
			if s.External != nil {
				return "only a client in Go can be built with a clock that jumps"
			}
			return ""
		},
		Steps: func(t *trial) {
			meanwhile(t, func(a, b *player) {
				who, jump := a, time.Hour
				if t.number%4 >= 2 {
					who = b
				}
				if t.number%2 == 1 {
					jump = -jump
				}
				who.tell("clock %d", int(jump.Seconds()))
				s, err := who.agent.await(10*time.Second, "clocked")
				t.must(err)
				us, err := strconv.ParseInt(s.text(), 10, 64)
				t.must(err)
				if is := time.UnixMicro(us).Sub(s.At); (is - jump).Abs() > time.Second {
					t.failf("the clock is ahead by %v, not by %v", is, jump)
				}
			})
		},
		Columns: meanwhileColumns, Cell: meanwhileCell,
		Bad: twoHeld,
	})
}
