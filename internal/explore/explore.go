// Package explore visits every state of a model, nearest first. The tests of the pure packages use
// it: a model is a small world of servers and clients that decide with the code under test.
package explore

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"
)

// Model is a world, as a value of type S, and the steps that it can take. A value is a state.
type Model[S comparable] struct {
	First S

	// Steps calls take for each state that one step leads to, always in the same order. A step that
	// must come is neither a fault nor a client's choice. what describes it, and may be nil.
	Steps func(s *S, take func(next *S, must bool, what func() string))

	// Broken returns the promise that is broken in a state, or "".
	Broken func(s *S) string

	// Stuck returns what is wrong in a state in which no step must come, or "".
	Stuck func(s *S) string

	// Encode appends the facts of a state that matter: two states with the same ones are one. nil
	// is for all facts.
	Encode func(b []byte, s *S) []byte
}

// Found is the result of an exploration.
type Found struct {
	States int
	Broken string   // the first promise that broke, by the fewest steps, or ""
	Trace  []string // these steps
	Took   time.Duration
}

// String returns the broken promise, after the steps.
func (f Found) String() string {
	return strings.Join(append(f.Trace, fmt.Sprintf("BROKEN: %s; found after %d states", f.Broken, f.States)), "\n")
}

// origin is where a state was first reached from: the number of that state, and of the step.
type origin struct {
	from uint32
	step uint16
}

// noStep leads to the first state.
const noStep = math.MaxUint16

// Run visits each state once, until a promise is broken. A hash of 64 bits identifies a state.
func (m Model[S]) Run() Found {
	began, seed := time.Now(), maphash.MakeSeed()
	var buf []byte
	hash := func(s *S) uint64 {
		if m.Encode == nil {
			return maphash.Comparable(seed, *s)
		}
		buf = m.Encode(buf[:0], s)
		return maphash.Bytes(seed, buf)
	}
	seen, origins := map[uint64]struct{}{hash(&m.First): {}}, []origin{{step: noStep}}
	result := func(broken string, last origin) Found {
		path := []origin{last}
		for path[0].from != 0 {
			path = slices.Insert(path, 0, origins[path[0].from])
		}
		return Found{States: len(origins), Broken: broken, Trace: m.trace(path), Took: time.Since(began)}
	}
	level, next, at := []S{m.First}, []S(nil), uint32(0) // at is the number of the level's first state
	for len(level) > 0 {
		for i := range level {
			me, step, goesOn, broken := at+uint32(i), uint16(0), false, ""
			var by origin
			m.Steps(&level[i], func(to *S, must bool, _ func() string) {
				this := origin{me, step}
				goesOn = goesOn || must
				if step++; broken != "" {
					return
				}
				if broken = m.Broken(to); broken != "" {
					by = this
					return
				}
				h := hash(to)
				if _, ok := seen[h]; !ok {
					seen[h] = struct{}{}
					origins, next = append(origins, this), append(next, *to)
				}
			})
			if broken != "" {
				return result(broken, by)
			}
			if !goesOn {
				if broken = m.Stuck(&level[i]); broken != "" {
					return result(broken, origins[me])
				}
			}
		}
		at += uint32(len(level))
		level, next = next, level[:0]
	}
	return result("", origins[0])
}

// trace takes the steps to a state again, to describe them.
func (m Model[S]) trace(path []origin) (what []string) {
	s := m.First
	for _, want := range path {
		step, to := uint16(0), s
		m.Steps(&s, func(next *S, _ bool, say func() string) {
			if step == want.step {
				if to = *next; say != nil {
					what = append(what, say())
				}
			}
			step++
		})
		s = to
	}
	return what
}
