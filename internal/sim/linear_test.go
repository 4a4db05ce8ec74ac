package sim

// This file compares the simulation's record with models of a mutex and of a fenced register, by
// porcupine.

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zklock/zklock"
)

// The recorded history as operations on two objects with a clear sequential meaning, for each lock
// separately:
//
// A lock with owners, which is free, or has an owner, a count and a token, or has readers. It has
// the last token that it gave, and the last that it gave to an owner alone. A mutex has no readers.
//
//	acquire → token   free, and the token is larger than the last: taken, count 1
//	read → token      no other owner has it alone, and the token is not smaller than that of the
//	                  last one that did: one reader more; its releases and losses are its own
//	acquire → no      nothing: an acquire that gave up, or a try in vain, has had no effect
//	re-enter → token  the owner has it with that token: count + 1
//	release → ok      the owner has it: count − 1, and free with the last
//	release → later   the same, at any time from the call on: an unconfirmed release may take
//	                  effect at any time
//	lose              the owner has it: free. It happens when the holder is notified, so a grant
//	                  before that is no linearization (I5); or in a release that returns the loss,
//	                  if the holder was not notified before
//	release → lost    the owner does not have it any more
//
// A register that compares tokens, which keeps the largest token and the value written with it.
//
//	write → accepted  the token is not smaller than the register's
//	write → refused   it is smaller, and the writer was not a holder with a correct belief
//	read              the value of the last accepted write
//
// A hold is omitted, with all its operations, if an authorized client ended its node or session, of
// which no client can be notified in time (F24), and if the lock was granted to the next while its
// process was paused (F18); its writes remain.

type mutexCall struct {
	what   string
	owner  string
	shared bool
}

type mutexState struct {
	owner   string // "" while no owner has it alone
	count   int
	readers string // the owners that read, each in angle brackets, in order
	token   int64  // the last given
	alone   int64  // the last given to an owner alone
}

var mutexModel = porcupine.Model{
	Init: func() any { return mutexState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, token := state.(mutexState), input.(mutexCall), output.(int64)
		if in.shared {
			return s.read(in.what, in.owner, token)
		}
		own := s.owner == in.owner
		switch in.what {
		case "acquire":
			ok := s.owner == "" && s.readers == "" && token > s.token
			s.owner, s.count, s.token, s.alone = in.owner, 1, token, token
			return ok, s
		case "acquire in vain":
			return true, s
		case "re-enter":
			s.count++
			return own && token == s.alone, s
		case "release", "lose":
			if s.count--; s.count == 0 || in.what == "lose" {
				s.owner, s.count = "", 0
			}
			return own, s
		case "release lost":
			return !own, s
		}
		panic(in.what)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %#x", input, output) },
}

// read is a step of a reader.
func (s mutexState) read(what, owner string, token int64) (bool, mutexState) {
	own := "<" + owner + ">"
	reads := strings.Contains(s.readers, own)
	switch what {
	case "acquire", "re-enter":
		ok := (s.owner == "" || s.owner == owner) && token >= s.alone && reads == (what == "re-enter")
		all := append(strings.SplitAfter(s.readers, ">"), own)
		slices.Sort(all)
		s.readers, s.token = strings.Join(all, ""), max(s.token, token)
		return ok, s
	case "acquire in vain":
		return true, s
	case "release":
		s.readers = strings.Replace(s.readers, own, "", 1)
		return reads, s
	case "lose":
		s.readers = strings.ReplaceAll(s.readers, own, "")
		return reads, s
	case "release lost":
		return !reads, s
	}
	panic(what)
}

type registerCall struct {
	what     string
	token    int64
	value    int
	believed bool
}

type registerState struct {
	token int64
	value int
}

var registerModel = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(registerState), input.(registerCall)
		switch in.what {
		case "accepted":
			return in.token >= s.token, registerState{in.token, in.value}
		case "refused":
			return in.token < s.token && !in.believed, s
		case "read":
			return s == registerState{in.token, in.value}, s
		}
		panic(in.what)
	},
}

// checkerTime is more than any history has ever taken; a slower checker has failed.
const checkerTime = time.Minute

// linearizable compares the history of each lock with both models.
func (r *record) linearizable(checked map[string]int) (violations []string) {
	out := r.outside()
	checked["holds left out of the mutex model"] += len(out)
	mutexes, registers := map[int][]porcupine.Operation{}, map[int][]porcupine.Operation{}
	for _, o := range r.ops {
		switch o.did {
		case once:
		case wrote, readBack:
			registers[o.lock] = append(registers[o.lock], registerOperation(o, out))
		default:
			mutexes[o.lock] = append(mutexes[o.lock], r.mutexOperations(o, out)...)
		}
	}
	for _, m := range []struct {
		what  string
		saw   string
		model porcupine.Model
		of    map[int][]porcupine.Operation
	}{{"mutex", sawMutex, mutexModel, mutexes}, {"register", sawRegister, registerModel, registers}} {
		for lock, ops := range m.of {
			checked[m.saw] += len(ops)
			switch porcupine.CheckOperationsTimeout(m.model, ops, checkerTime) {
			case porcupine.Illegal:
				violations = append(violations, fmt.Sprintf("lock %d: the history of the %s is not linearizable", lock, m.what))
			case porcupine.Unknown:
				violations = append(violations, fmt.Sprintf("lock %d: no verdict on the history of the %s within %v", lock, m.what, checkerTime))
			}
		}
	}
	return violations
}

// outside returns the holds that the model of the mutex omits.
func (r *record) outside() map[*op]bool {
	byPath, _ := r.nodes()
	of := map[string][]*op{}
	for _, o := range r.ops {
		if o.granted() {
			of[path.Dir(o.node)] = append(of[path.Dir(o.node)], o)
		}
	}
	out := map[*op]bool{}
	for _, grants := range of {
		slices.SortFunc(grants, func(a, b *op) int { return cmp.Compare(a.ret, b.ret) })
		for i, g := range grants {
			_, asleep := r.paused(g.client, g.ret)
			overtaken := false
			for _, next := range grants[i+1:] {
				if g.excludes(next) {
					overtaken = overtaken || g.until > next.ret && r.firstLook(g, next.ret)
					if !next.shared {
						break
					}
				}
			}
			if n := byPath[g.node]; n != nil && n.touched || overtaken || asleep && g.lost {
				out[g] = true
			}
		}
	}
	return out
}

func (r *record) mutexOperations(o *op, out map[*op]bool) (ops []porcupine.Operation) {
	if out[o] || out[o.grant] || o.permits > 0 || o.grant != nil && o.grant.permits > 0 {
		return nil
	}
	add := func(what string, from, to int64) {
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: mutexCall{what, o.owner, o.shared}, Output: o.token, Call: from, Return: to})
	}
	switch {
	case o.granted():
		add("acquire", o.call, o.ret)
		if o.lost {
			add("lose", o.until, o.until)
		}
	case o.did == acquired, o.did == tried:
		add("acquire in vain", o.call, o.ret)
	case o.did == reentered && o.err == nil:
		add("re-enter", o.call, o.ret)
	case o.did == released && o.err == nil:
		add("release", o.call, o.ret)
	case o.did == released && o.grant.lost && o.grant.until < o.ret:
		add("release lost", max(o.call, o.grant.until), o.ret)
	case o.did == released && errors.Is(o.err, zklock.ErrLost):
		if o.call == o.grant.until { // the holder was not notified before
			add("lose", o.call, o.ret)
		}
	case o.did == released && errors.Is(o.err, zklock.ErrNotConfirmed):
		add("release", o.call, r.last+1)
	}
	return ops
}

func registerOperation(o *op, out map[*op]bool) porcupine.Operation {
	in := registerCall{"read", o.token, o.value, o.believed && !out[o.grant]}
	switch {
	case o.did == wrote && o.accepted:
		in.what = "accepted"
	case o.did == wrote:
		in.what = "refused"
	}
	return porcupine.Operation{ClientId: o.client, Input: in, Call: o.call, Return: o.ret}
}
