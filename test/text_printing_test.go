package zklock_test

// These tests print everything that can be printed: it contains no secret.

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

const (
	printedUser   = "alice"
	printedSecret = "s3cr3t-Wachtwoord"
)

// printable has at least one value of every exported type, of a Session with credentials; and every
// error that concerns them.
type printable struct {
	s      *zklock.Session
	key    func() sessionkey.Key
	log    *bytes.Buffer // the Session's log, at all levels; to be read when it is closed
	values map[string]any
}

func printedSASL() zklock.Option {
	return zklock.WithSASL(sasl.DigestMD5(printedUser, printedSecret))
}

// inPrintedTime has a server that also accepts the user by SASL.
func inPrintedTime(t *testing.T, f func(t *testing.T, v *virtual)) {
	t.Helper()
	inVirtualTime(t, f, zktest.WithSASLUsers(map[string]string{printedUser: printedSecret}))
}

func newPrintable(t *testing.T, srv, path string, opts ...zklock.Option) printable {
	t.Helper()
	p := printable{log: new(bytes.Buffer)}
	auth := zklock.WithDigest(printedUser, printedSecret)
	debug := zklock.WithLogger(slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	opts = append(opts, auth)
	p.s = hooked(t, hook.Session{Key: &p.key}, srv, append(opts, debug)...)
	ctx := within(t, soon)
	acl := zk.DigestACL(zk.PermAll, printedUser, printedSecret)
	m := newMutex(t, p.s, path, zklock.WithACL(acl))
	hold, err := m.Acquire(ctx)
	require.NoError(t, err)
	multi := newMulti(t, m)
	all, err := multi.Acquire(reentering(hold))
	require.NoError(t, err)
	participants, err := m.Participants(ctx)
	require.NoError(t, err)

	fails := func(_ any, err error) error {
		require.Error(t, err)
		return err
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	try, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	named := zklock.NewOwner("worker")
	p.values = map[string]any{
		"a Session":                    p.s,
		"a Mutex":                      m,
		"an Election":                  newElection(t, p.s, path, "a", zklock.WithACL(acl)),
		"a Semaphore":                  newSemaphore(t, p.s, path+"/sem", 1, zklock.WithACL(acl)),
		"permits of it":                newSemaphore(t, p.s, path+"/sem", 1, zklock.WithACL(acl)).Permits(1),
		"an RWMutex":                   newRWMutex(t, p.s, path, zklock.WithACL(acl)),
		"a Hold":                       hold,
		"its context":                  hold.Context(),
		"its check":                    hold.Checks()[0],
		"its Sequencer":                hold.Sequencer(),
		"its ending":                   ending(t, hold, time.Second),
		"a Multi":                      multi,
		"a MultiHold":                  all,
		"an Owner":                     named,
		"an Option":                    auth,
		"a SASLMechanism":              sasl.DigestMD5(printedUser, printedSecret),
		"an Option with it":            printedSASL(),
		"a LockOption":                 zklock.WithACL(acl),
		"a DoOption":                   zklock.WaitAtMost(0),
		"a LeaseMode":                  zklock.QuorumLease(0),
		"a State":                      p.s.Stats().State,
		"a Change":                     zklock.Change{State: zklock.StateLost, SessionID: p.s.Stats().SessionID, Time: time.Now(), Err: hold.Err()},
		"a Participant":                participants[0],
		"a Leadership":                 zklock.Leadership{Participant: participants[0]},
		"its Stats":                    p.s.Stats(),
		"a run that is done":           zklock.OnceRun{Key: "2026-07-01", By: "host:1", At: time.Now(), Token: 1},
		"a Trace":                      zklock.Trace{},
		"an AcquireInfo":               zklock.AcquireInfo{Path: path},
		"a Kind":                       zklock.KindMutex,
		"a Loss":                       zklock.LossNode,
		"an AcquireEndInfo":            zklock.AcquireEndInfo{Hold: hold},
		"a HoldInfo":                   zklock.HoldInfo{Hold: hold, Err: hold.Err()},
		"an Error, not acquired":       fails(m.TryAcquire(ctx)),
		"an Error, context ended":      fails(m.Acquire(over)),
		"an Error, no server":          fails(zklock.Connect(try, "127.0.0.1:1", append(opts, quiet(t))...)),
		"an Error, both in one":        fails(zklock.Connect(ctx, srv, zklock.WithDigest(printedUser+":"+printedSecret, "digest"))),
		"an Error, no SASL user":       fails(zklock.Connect(ctx, srv, zklock.WithSASL(sasl.DigestMD5("", printedSecret)))),
		"an Error, no user":            fails(zklock.Connect(ctx, srv, zklock.WithDigest("", printedSecret))),
		"an Error, in the servers":     fails(zklock.Connect(ctx, printedUser+":"+printedSecret+"@"+srv, auth)),
		"an Error, in a URL":           fails(zklock.Connect(ctx, "zk://"+printedUser+":"+printedSecret+"@"+srv+"/app", auth)),
		"an Error, in the second host": fails(zklock.Connect(ctx, srv+","+printedUser+":"+printedSecret+"@"+srv, auth)),
	}
	return p
}

// secrets are the values that must not be visible, by name.
func (p printable) secrets() map[string][]byte {
	return map[string][]byte{"credentials": []byte(printedSecret), "the ZooKeeper session's password": p.key().Password}
}

// R71: printing shows no secret of any exported type: by itself, in a slice, and in a struct, whose
// methods fmt does not call.
func TestPrinting_NoSecret(t *testing.T) { inPrintedTime(t, noSecret) }

func noSecret(t *testing.T, v *virtual) {
	p := newPrintable(t, v.srv.Addr(), "/job", zklock.WithDialer(v.net.Dial), printedSASL())
	secrets := p.secrets()
	require.NoError(t, p.s.Close())
	time.Sleep(time.Minute) // the client closes its connection after it has logged its end; and a failed Connect closes its connections
	synctest.Wait()
	for name, v := range p.values {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			got := fmt.Sprintf(format+" "+format+" "+format, v, []any{v}, struct{ v any }{v})
			for what, secret := range secrets {
				for _, needle := range []string{string(secret), fmt.Sprintf(format, string(secret)), strings.Trim(fmt.Sprintf(format, secret), "[]{}")} {
					require.NotContains(t, got, needle, "%s printed with %s shows %s", name, format, what)
				}
			}
		}
	}
}

// R71: every exported type is among the values of these tests.
func TestPrinting_EveryType(t *testing.T) {
	have := map[string]bool{}
	srv := target(t)
	for _, v := range newPrintable(t, srv, lockPath(t, srv)).values {
		typ := reflect.TypeOf(v)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		have[typ.Name()] = true
	}
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok || !ts.Name.IsExported() || have[ts.Name.Name] {
					continue
				}
				if _, isInterface := ts.Type.(*ast.InterfaceType); !isInterface { // whose values are of other types
					t.Errorf("%s: give newPrintable a value of the exported type %s", name, ts.Name)
				}
			}
		}
	}
}

// R71: slog does not show one either, in text or in JSON, whether a value is passed to it or the
// Session itself logs. In text a value is its String.
func TestPrinting_Logs(t *testing.T) {
	srv := target(t)
	p := newPrintable(t, srv, lockPath(t, srv))
	var out bytes.Buffer
	handlers := []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)}
	for name, v := range p.values {
		for _, h := range handlers {
			slog.New(h).Info(name, "v", v, slog.Group("g", "v", v))
		}
	}
	slog.New(handlers[0]).Info("the last", "s", p.values["a Session"], "m", p.values["a Mutex"], "h", p.values["a Hold"])
	secrets := p.secrets()
	hold, m := p.values["a Hold"].(*zklock.Hold), p.values["a Mutex"].(*zklock.Mutex)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	require.Contains(t, last, "Connected")
	require.Contains(t, last, m.Path())
	require.Contains(t, last, hold.Node())
	require.NoError(t, p.s.Close())
	require.Contains(t, p.log.String(), "level=DEBUG", "the client's own lines are there")
	out.Write(p.log.Bytes())
	for what, secret := range secrets {
		for _, needle := range []string{string(secret), fmt.Sprint(secret), fmt.Sprintf("%x", secret), fmt.Sprintf("%q", secret)} {
			require.NotContains(t, out.String(), strings.Trim(needle, `[]"`), what)
		}
	}
}

// R71, R141: printers that follow pointers by reflection (a crash reporter, a test's diff) find no
// secret either, in a Session that lives or is closed. The ZooKeeper client under the Session keeps
// its session's password, as Conn's comment states, and no credentials.
func TestPrinting_NothingToFind(t *testing.T) {
	inPrintedTime(t, func(t *testing.T, v *virtual) { nothingToFind(t, v, nil) })
}

func nothingToFind(t *testing.T, v *virtual, others map[string][]byte, more ...zklock.Option) {
	opts := []zklock.Option{zklock.WithDialer(v.net.Dial), printedSASL(), zklock.WithGuard(filepath.Join(t.TempDir(), "none"))}
	p := newPrintable(t, v.srv.Addr(), "/job", append(opts, more...)...)
	secrets := p.secrets()
	maps.Copy(secrets, others)
	seek := func() {
		synctest.Wait()
		for name, v := range p.values {
			walkValue(reflect.ValueOf(v), "", map[visit]bool{}, func(path string, b []byte) {
				for what, secret := range secrets {
					if bytes.Contains(b, secret) && !(what != "credentials" && strings.Contains(path, "(the client)")) {
						t.Errorf("%s: %s at %s", name, what, path)
					}
				}
			})
		}
	}
	time.Sleep(time.Second)
	seek()
	require.NoError(t, p.s.Close())
	time.Sleep(time.Minute) // or the printed value changes
	seek()
	found := false
	walkValue(reflect.ValueOf(p.s), "", map[visit]bool{}, func(path string, b []byte) {
		found = found || bytes.Contains(b, secrets["the ZooKeeper session's password"])
	})
	require.True(t, found, "the walk does not find what the client has")
}

type visit struct {
	at  uintptr
	typ reflect.Type
}

// walkValue calls see with every string and every run of bytes that can be reached from v,
// including unexported fields, but not the server's contents, to which the network in memory leads.
func walkValue(v reflect.Value, path string, seen map[visit]bool, see func(path string, b []byte)) {
	switch v.Kind() {
	case reflect.String:
		see(path, []byte(v.String()))
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if v.IsNil() {
			return
		}
		at := visit{v.Pointer(), v.Type()}
		if seen[at] && v.Kind() != reflect.Slice {
			return
		}
		seen[at] = true
		switch {
		case v.Kind() == reflect.Pointer:
			walkValue(v.Elem(), path, seen, see)
		case v.Kind() == reflect.Map:
			for i := v.MapRange(); i.Next(); {
				walkValue(i.Key(), path+"[key]", seen, see)
				walkValue(i.Value(), path+"[]", seen, see)
			}
		case v.Type().Elem().Kind() == reflect.Uint8:
			see(path, v.Bytes())
		default:
			for i := range v.Len() {
				walkValue(v.Index(i), path+"[]", seen, see)
			}
		}
	case reflect.Interface:
		if !v.IsNil() {
			walkValue(v.Elem(), path, seen, see)
		}
	case reflect.Array:
		for i := range v.Len() {
			walkValue(v.Index(i), path+"[]", seen, see)
		}
	case reflect.Struct:
		if strings.HasSuffix(v.Type().PkgPath(), "/zktest") {
			return
		}
		if v.Type() == reflect.TypeFor[zk.Conn]() {
			path += "(the client)"
		}
		for i := range v.NumField() {
			walkValue(v.Field(i), path+"."+v.Type().Field(i).Name, seen, see)
		}
	}
}

// R71: printing a value in use is no data race: a printer must not read data that is guarded by a
// lock that it does not have.
func TestPrinting_WhileInUse(t *testing.T) {
	s := connect(t, target(t))
	m := newMutex(t, s, "/printing")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			_ = m.Do(within(t, soon), func(ctx context.Context, _ *zklock.Hold) error { return ctx.Err() })
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		h, err := m.TryAcquire(within(t, soon))
		fmt.Fprintf(io.Discard, "%v %+v %#v %v %#v %v %#v %v", s, s, s, m, m, h, h, err)
		if h != nil {
			fmt.Fprintf(io.Discard, "%+v %+v", h, h.Context())
			release(t, h)
		}
	}
}

// The output of the three.
func TestPrinting_Text(t *testing.T) {
	srv := zktest.Start(t).Addr()
	s := connect(t, srv+"/app", zklock.WithCreateChroot())
	m := newMutex(t, s, "/locks/orders")
	h := acquire(t, m)
	require.Equal(t, fmt.Sprintf("Session(%s/app, Connected to %s, %#x)", srv, srv, s.Stats().SessionID), fmt.Sprint(s))
	require.Equal(t, "Mutex(/locks/orders)", fmt.Sprint(m))
	require.Equal(t, fmt.Sprintf("Hold(%s, token %d)", h.Node(), h.Token()), fmt.Sprintf("%+v", h))
	require.Equal(t, "<nil> <nil> <nil>", fmt.Sprint((*zklock.Session)(nil), (*zklock.Mutex)(nil), (*zklock.Hold)(nil)))
}
