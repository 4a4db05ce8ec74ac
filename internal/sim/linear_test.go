package sim

// This file compares the simulation's record with models of a mutex and of a fenced register, by
// porcupine.

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zklock/zklock"
)

// The recorded history as operations on two objects with a clear sequential meaning, for each lock
// separately:
//
// A mutex with owners, which is free or has an owner, a count and a token, and has the last token
// that it gave.
//
//	acquire → token   free, and the token is larger than the last: taken, count 1
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
	what  string
	owner string
}

type mutexState struct {
	owner string // "" while it is free
	count int
	token int64 // the last given
}

var mutexModel = porcupine.Model{
	Init: func() any { return mutexState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, token := state.(mutexState), input.(mutexCall), output.(int64)
		own := s.owner == in.owner
		switch in.what {
		case "acquire":
			return s.owner == "" && token > s.token, mutexState{in.owner, 1, token}
		case "acquire in vain":
			return true, s
		case "re-enter":
			return own && token == s.token, mutexState{s.owner, s.count + 1, s.token}
		case "release":
			if s.count == 1 {
				return own, mutexState{token: s.token}
			}
			return own, mutexState{s.owner, s.count - 1, s.token}
		case "lose":
			return own, mutexState{token: s.token}
		case "release lost":
			return !own, s
		}
		panic(in.what)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %#x", input, output) },
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
			if i+1 < len(grants) && g.until > grants[i+1].ret {
				to, paused := r.paused(g.client, grants[i+1].ret)
				overtaken = paused && g.until <= to
			}
			if n := byPath[g.node]; n != nil && n.touched || overtaken || asleep && g.lost {
				out[g] = true
			}
		}
	}
	return out
}

func (r *record) mutexOperations(o *op, out map[*op]bool) (ops []porcupine.Operation) {
	if out[o] || out[o.grant] {
		return nil
	}
	add := func(what string, from, to int64) {
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: mutexCall{what, o.owner}, Output: o.token, Call: from, Return: to})
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
