package zklock_test

// These tests call everything on a nil or zero Session, lock, Semaphore, Election and hold, or with
// a nil context: the error of each call contains the remedy.

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// unusable are the types whose values come from a function, and what each of their methods says on
// any other value.
var unusable = []struct {
	values []any
	says   string
}{
	{[]any{(*zklock.Session)(nil), new(zklock.Session)}, "use the one that Connect returns"},
	{[]any{(*zklock.Mutex)(nil), new(zklock.Mutex)}, "use the one that NewMutex returns"},
	{[]any{(*zklock.Election)(nil), new(zklock.Election)}, "use the one that NewElection returns"},
	{[]any{(*zklock.Semaphore)(nil), new(zklock.Semaphore)}, "use the one that NewSemaphore returns"},
	{[]any{(*zklock.RWMutex)(nil), new(zklock.RWMutex)}, "use the one that NewRWMutex returns"},
	{[]any{(*zklock.Hold)(nil), new(zklock.Hold)}, "use the one that Acquire returns"},
	{[]any{(*zklock.Multi)(nil), new(zklock.Multi)}, "use the one that NewMulti returns"},
	{[]any{(*zklock.MultiHold)(nil), new(zklock.MultiHold)}, "use the one that Acquire returns"},
}

// usable are the types whose zero value means something.
var usable = []any{zklock.State(0), zklock.Owner{}, zklock.LeaseMode{}, zklock.Sequencer{}, &zklock.Error{}}

// A method that can return an error does; any other method panics with the same text. None
// dereferences nil.
func TestNilAndZeroValues_SayWhatToDo(t *testing.T) {
	work := func(context.Context, *zklock.Hold) error { return nil }
	workOnAll := func(context.Context, *zklock.MultiHold) error { return nil }
	for _, c := range unusable {
		for _, value := range c.values {
			v := reflect.ValueOf(value)
			for i := range v.NumMethod() {
				name := fmt.Sprint(v.Type(), ".", v.Type().Method(i).Name)
				var in []reflect.Value
				for j := range v.Method(i).Type().NumIn() {
					switch typ := v.Method(i).Type().In(j); {
					case typ == reflect.TypeFor[context.Context]():
						in = append(in, reflect.ValueOf(t.Context()))
					case typ == reflect.TypeFor[int]():
						in = append(in, reflect.ValueOf(1))
					case typ == reflect.TypeFor[time.Duration]():
						in = append(in, reflect.ValueOf(time.Second))
					case typ == reflect.TypeFor[string]():
						in = append(in, reflect.ValueOf("2026-07-01"))
					case typ == reflect.TypeOf(work):
						in = append(in, reflect.ValueOf(work))
					case typ == reflect.TypeOf(workOnAll):
						in = append(in, reflect.ValueOf(workOnAll))
					}
				}
				panics := true
				err := func() (err error) {
					defer func() {
						if r := recover(); r != nil {
							err = r.(error)
						}
					}()
					out := v.Method(i).Call(in)
					panics = false
					require.NotEmpty(t, out, name)
					if pairs, ok := out[0].Interface().(iter.Seq2[zklock.Leadership, error]); ok {
						n := 0
						for _, err = range pairs {
							n++
						}
						require.Equal(t, 1, n, name)
					} else {
						err, _ = out[len(out)-1].Interface().(error)
					}
					require.Error(t, err, name)
					var e *zklock.Error
					require.ErrorAs(t, err, &e, name)
					return err
				}()
				require.ErrorContains(t, err, c.says, name)
				require.True(t, zklock.IsFinal(err), name)
				if n := v.Method(i).Type().NumOut(); n > 0 && v.Method(i).Type().Out(n-1) == reflect.TypeFor[error]() {
					require.False(t, panics, "%s can return its error", name)
				}
			}
		}
	}
	for _, s := range []*zklock.Session{nil, {}} {
		_, err := zklock.NewMutex(s, "/job")
		require.ErrorContains(t, err, "use the one that Connect returns")
	}
}

// The methods of the other types take a zero value as it is.
func TestZeroValues_OfOtherTypes(t *testing.T) {
	for _, value := range usable {
		v := reflect.ValueOf(value)
		for i := range v.NumMethod() {
			var args []reflect.Value
			for in := range v.Method(i).Type().NumIn() {
				args = append(args, reflect.Zero(v.Method(i).Type().In(in)))
			}
			require.NotPanics(t, func() { v.Method(i).Call(args) }, "%v.%s", v.Type(), v.Type().Method(i).Name)
		}
	}
}

// Each exported type with exported methods is in one of the two lists.
func TestZeroValues_EachTypeIsListed(t *testing.T) {
	var listed []string
	for _, c := range unusable {
		listed = append(listed, reflect.TypeOf(c.values[0]).Elem().Name())
	}
	for _, value := range usable {
		listed = append(listed, reflect.Indirect(reflect.ValueOf(value)).Type().Name())
	}
	names, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var found []string
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || !method.Name.IsExported() {
				continue
			}
			typ := method.Recv.List[0].Type
			if pointer, ok := typ.(*ast.StarExpr); ok {
				typ = pointer.X
			}
			if typ := typ.(*ast.Ident); typ.IsExported() && !slices.Contains(found, typ.Name) {
				found = append(found, typ.Name)
			}
		}
	}
	require.ElementsMatch(t, listed, found)
}

// A nil function, and a nil option of Do, are rejected before any request.
func TestDo_NilFunction(t *testing.T) {
	m := newMutex(t, connect(t, target(t)), "/job")
	require.ErrorContains(t, m.Do(t.Context(), nil), "nil function")
	require.ErrorContains(t, m.TryDo(t.Context(), nil), "nil function")
	require.ErrorContains(t, m.Do(t.Context(), func(context.Context, *zklock.Hold) error { return nil }, nil), "nil DoOption")
	require.False(t, m.Held())
}

// So is a nil context.
func TestNilContexts(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	m := newMutex(t, s, lockPath(t, srv))
	var none context.Context
	_, err := m.Acquire(none)
	require.ErrorContains(t, err, "nil context")
	_, err = m.Participants(none)
	require.ErrorContains(t, err, "nil context")
	e := newElection(t, s, m.Path(), "a")
	_, err = e.Leader(none)
	require.ErrorContains(t, err, "nil context")
	for _, err = range e.Observe(none) {
		require.ErrorContains(t, err, "nil context")
	}
	require.ErrorContains(t, e.Resign(none), "nil context")
	require.ErrorContains(t, e.Campaign(none, func(context.Context, *zklock.Hold) error { return nil }), "nil context")
	_, _, err = newSemaphore(t, s, m.Path(), 1).Participants(none)
	require.ErrorContains(t, err, "nil context")
	_, err = zklock.Connect(none, srv)
	require.ErrorContains(t, err, "nil context")
	h := acquire(t, m)
	require.ErrorContains(t, h.Release(none), "nil context")
	require.NoError(t, h.Err(), "a refused call changes nothing")
	release(t, h)
}
