package command

// Parses a fault of zktest as it prints: After(create).Path("/locks/*").Nth(2).DropReply().Close().

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/zktest"
)

// faultSteps are the methods of a fault, except for Call, which takes a function.
var faultSteps = map[string]func(f zktest.Fault, arg string) (zktest.Fault, error){
	"Path":      parsed(strconv.Unquote, zktest.Fault.Path),
	"Session":   parsed(func(arg string) (int64, error) { return strconv.ParseInt(arg, 0, 64) }, zktest.Fault.Session),
	"Member":    parsed(strconv.Atoi, zktest.Fault.Member),
	"Nth":       parsed(strconv.Atoi, zktest.Fault.Nth),
	"Times":     parsed(strconv.Atoi, zktest.Fault.Times),
	"Delay":     parsed(time.ParseDuration, zktest.Fault.Delay),
	"FreezeFor": parsed(time.ParseDuration, zktest.Fault.FreezeFor),
	"Chance": func(f zktest.Fault, arg string) (zktest.Fault, error) {
		p, seed, both := strings.Cut(arg, ",")
		if !both {
			return f, errors.New("takes a chance and a seed: 0.1, 7")
		}
		chance, err := strconv.ParseFloat(p, 64)
		if err != nil {
			return f, err
		}
		n, err := strconv.ParseUint(strings.TrimSpace(seed), 0, 64)
		return f.Chance(chance, n), err
	},
	"Fail": func(f zktest.Fault, arg string) (zktest.Fault, error) {
		code, err := strconv.ParseInt(faultCode.FindString(arg), 10, 32)
		return f.Fail(zktest.Code(code)), err
	},
	"Once": plainly(zktest.Fault.Once), "Optional": plainly(zktest.Fault.Optional), "Close": plainly(zktest.Fault.Close),
	"DropReply": plainly(zktest.Fault.DropReply), "Drop": plainly(zktest.Fault.Drop), "Duplicate": plainly(zktest.Fault.Duplicate),
	"Hold": plainly(zktest.Fault.Hold), "Expire": plainly(zktest.Fault.Expire),
}

// faultCode matches the number in a code, which prints as "no node (-101)".
var faultCode = regexp.MustCompile(`-?\d+`)

var errArgument = errors.New("takes no argument")

func plainly(step func(zktest.Fault) zktest.Fault) func(zktest.Fault, string) (zktest.Fault, error) {
	return func(f zktest.Fault, arg string) (zktest.Fault, error) {
		if arg != "" {
			return f, errArgument
		}
		return step(f), nil
	}
}

func parsed[T any](parse func(string) (T, error), step func(zktest.Fault, T) zktest.Fault) func(zktest.Fault, string) (zktest.Fault, error) {
	return func(f zktest.Fault, arg string) (zktest.Fault, error) {
		v, err := parse(arg)
		return step(f, v), err
	}
}

// parseFault parses a fault. Names may have the prefix zktest., as in Go.
func parseFault(s string) (f zktest.Fault, err error) {
	s = strings.ReplaceAll(strings.TrimSpace(s), "zktest.", "")
	name, arg, rest, err := nextCall(s)
	if err != nil {
		return f, err
	}
	switch name {
	case "Before", "After":
		op, ok := byName(arg, zktest.Op.String, -11, 107)
		if !ok {
			return f, fmt.Errorf("%s(%s): there is no such request", name, arg)
		}
		if f = zktest.Before(op); name == "After" {
			f = zktest.After(op)
		}
	case "OnEvent":
		event, ok := byName(arg, zktest.EventType.String, 0, 4)
		if !ok {
			return f, fmt.Errorf("OnEvent(%s): there is no such event", arg)
		}
		f = zktest.OnEvent(event)
	case "RefuseConnections":
		f = zktest.RefuseConnections()
	default:
		return f, fmt.Errorf("%s: a fault begins with Before, After, OnEvent or RefuseConnections", name)
	}
	for rest != "" {
		rest, _ = strings.CutPrefix(rest, ".")
		if name, arg, rest, err = nextCall(rest); err != nil {
			return f, err
		}
		step, ok := faultSteps[name]
		if !ok {
			return f, fmt.Errorf("%s: there is no such step", name)
		}
		if f, err = step(f, arg); err != nil {
			return f, fmt.Errorf("%s(%s): %w", name, arg, err)
		}
	}
	return f, nil
}

// byName finds the value in [from, to] with this name, as it prints or as Go has it: create,
// Create, any, AnyOp.
func byName[T ~int32](name string, spelled func(T) string, from, to T) (T, bool) {
	for v := from; v <= to; v++ {
		if s := spelled(v); strings.EqualFold(s, name) && !strings.Contains(s, "(") || v == 0 && (name == "AnyOp" || name == "AnyEvent") {
			return v, true
		}
	}
	return 0, false
}

// nextCall cuts name(arg) off the beginning.
func nextCall(s string) (name, arg, rest string, err error) {
	name, rest, ok := strings.Cut(s, "(")
	if !ok {
		return "", "", "", fmt.Errorf("%q: write name(argument)", s)
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		arg = quoted
	} else {
		end, open := 0, 0
		for ; end < len(rest) && (rest[end] != ')' || open > 0); end++ {
			switch rest[end] {
			case '(':
				open++
			case ')':
				open--
			}
		}
		arg = rest[:end]
	}
	rest, ok = strings.CutPrefix(rest[len(arg):], ")")
	if !ok {
		return "", "", "", fmt.Errorf("%q: a bracket is not closed", s)
	}
	return strings.TrimSpace(name), strings.TrimSpace(arg), strings.TrimSpace(rest), nil
}
