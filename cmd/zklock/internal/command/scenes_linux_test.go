package command

// Side by side with plain: a scene in a terminal runs twice, with and without `zklock run --`
// before its commands, and has to show the same on the screen: output, exit codes, what the shell
// says of its jobs, what a script does next, each signal.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// scene is a script for a terminal. $ZK, in front of each command, is empty in the plain run. Each
// line of play is a step:
//
//	? TEXT        wait until the screen shows it, after what was waited for before
//	^C ^Z ^D ^\   press this key
//	@ NAME STATE  wait until a process of this name, in the terminal's session, is in this state of ps: S, T; S+ in the foreground;
//	              job is any child of the session's leader
//	! COMMAND     have another shell run this, outside of the terminal
//	hang up       close the terminal
//	anything else is typed, with a newline
type scene struct {
	name    string
	leader  string // what leads the terminal's session; an interactive bash if empty
	script  string // the file s
	play    string
	nightly bool   // a scene of the same kind runs on each change, and this one in make nightly PART=command
	differ  string // why the two must differ; the play then has what ours shows, and the plain run is left out
}

// tally is a program that says each signal that comes, as often as it comes, and ends with 3 when
// it is told to.
const tally = `for s in ${COUNT:-INT QUIT HUP USR1 USR2 TSTP CONT TTIN TTOU}; do trap "echo got $s" $s; done
trap 'echo got TERM; exit 3' TERM
mkfifo f.$$; exec 9<>f.$$; rm f.$$; echo $$ >pid; echo up
while :; do read -t 0.02 -u 9; done
`

// rounds is how often a scene repeats what is easily done once.
var rounds = func() int {
	if n, err := strconv.Atoi(os.Getenv("ZKLOCK_ROUNDS")); err == nil {
		return n
	}
	return 3
}()

var scenes = []scene{
	// Ctrl-C, and what comes after.
	{name: "Ctrl-C in a script, bash", script: "$ZK sleep 100; echo next", play: `
		bash s
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	{name: "Ctrl-C in a script, dash", nightly: true, script: "$ZK sleep 100; echo next", play: `
		dash s
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	{name: "Ctrl-C in a loop, bash", nightly: true, script: "for i in 1 2 3; do echo round $i; $ZK sleep 100; done; echo next", play: `
		bash s
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	{name: "Ctrl-C in a loop, dash", script: "for i in 1 2 3; do echo round $i; $ZK sleep 100; done; echo next", play: `
		dash s
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	{name: "Ctrl-C in a loop that is typed", nightly: true, play: `
		for i in 1 2 3; do echo round $i; $ZK sleep 100; done
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	// The script goes on if bash waited for COMMAND. When COMMAND is up, it need not do so yet.
	{name: "Ctrl-C in a script, COMMAND ends by itself", script: "$ZK bash -c 'trap \"exit 5\" INT; echo up; while :; do sleep 0.02; done'; echo next $?", play: `
		bash s
		? up
		@ job S
		^C
		? next 5`},
	{name: "Ctrl-\\ in a script, bash", nightly: true, script: "ulimit -c 0; $ZK sleep 100; echo next $?", play: `
		bash s
		@ sleep S+
		^\
		? next 131`}, // bash itself ignores it
	{name: "Ctrl-\\ in a script, dash", script: "ulimit -c 0; $ZK sleep 100; echo next $?", play: `
		ulimit -c 0
		dash s
		@ sleep S+
		^\
		? Quit
		? $
		echo code $?
		? code 131`},
	{name: "Ctrl-C and Ctrl-\\ are caught", play: `
		$ZK bash tally
		? up
		^C
		? got INT
		@ bash S+
		^C
		? got INT
		^\
		? got QUIT
		! kill $(cat pid)
		? $
		echo code $?
		? code 3`},
	{name: "a loop in a script, COMMAND is killed", nightly: true, script: "for i in 1 2; do $ZK sh -c 'kill -TERM $$'; echo code $?; $ZK sh -c 'kill -KILL $$'; echo code $?; done", play: `
		bash s
		? code 143
		? code 137
		? code 143
		? code 137
		? $`},

	// Ctrl-Z, fg, bg.
	{name: "Ctrl-Z, fg, bg", play: `
		$ZK sleep 100
		@ sleep S+
		^Z
		? Stopped
		? $
		bg
		@ sleep S
		? $
		jobs
		? Running
		? $
		fg
		@ sleep S+
		^C
		? $
		echo code $?
		? code 130`},
	{name: "Ctrl-Z and fg, round after round", nightly: true, play: `
		$ZK cat
		` + strings.Repeat(`
		@ cat S+
		hello
		? hello
		^Z
		? Stopped
		? $
		fg`, rounds) + `
		@ cat S+
		^D
		? $
		echo code $?
		? code 0`},
	{name: "Ctrl-Z and fg, the output is a file", nightly: true, play: `
		$ZK cat > out
		` + strings.Repeat(`
		@ cat S+
		hello
		! until [ -s out ]; do sleep 0.01; done; : > out
		^Z
		? Stopped
		? $
		fg`, rounds) + `
		@ cat S+
		^D
		? $
		echo code $?
		? code 0`},
	{name: "Ctrl-Z is ignored", nightly: true, play: `
		$ZK sh -c 'trap "" TSTP; echo up; read x; echo "read $x"'
		? up
		^Z
		hello
		? read hello
		? $`},
	{name: "Ctrl-Z is caught", play: `
		$ZK bash tally
		? up
		^Z
		? got TSTP
		! kill $(cat pid)
		? $`},
	// bash can lose a signal that comes while it is handling the same. It sleeps when it has done with
	// it.
	{name: "Ctrl-Z, COMMAND cleans up first", nightly: true, script: `c() { echo cleaning; trap - TSTP; kill -TSTP $$; trap c TSTP; echo again; }
		trap c TSTP; mkfifo f; exec 9<>f; echo up; while :; do read -t 0.02 -u 9; done`, play: `
		$ZK bash s
		? up
		^Z
		? cleaning
		? Stopped
		? $
		fg
		? again
		@ bash S+
		^Z
		? cleaning
		? Stopped
		? $
		fg
		? again
		@ bash S+
		^C
		? $
		echo code $?
		? code 130`},
	// Plain, the shell says so as soon as the script has stopped: cat may still read what is typed
	// then.
	{name: "Ctrl-Z in a script", script: "$ZK cat; echo next $?", play: `
		bash s
		@ cat S+
		^Z
		? Stopped
		? $
		@ cat T
		fg
		@ cat S+
		hello
		? hello
		^D
		? next 0`},
	{name: "COMMAND stops itself", play: `
		$ZK sh -c 'kill -STOP $$; read x; echo "again $x"'
		? Stopped
		? $
		fg
		hello
		? again hello
		? $`},
	{name: "COMMAND stops itself, the output is a file", nightly: true, play: `
		$ZK sh -c 'kill -STOP $$; echo again' > out
		? Stopped
		? $
		fg
		? $
		cat out
		? again`},
	{name: "an interactive shell, suspended", play: `
		$ZK bash --norc --noprofile --noediting -i
		? $
		echo in $((1+1))
		? in 2
		sleep 100
		@ sleep S+
		^Z
		? Stopped
		fg
		@ sleep S+
		^C
		? $
		suspend
		? Stopped
		? $
		fg
		echo in $((2+2))
		? in 4
		exit 5
		? exit
		? $
		echo code $?
		? code 5`},

	// Pipelines.
	{name: "the other end of a pipeline reads the keyboard", nightly: true, play: `
		$ZK sh -c 'echo from below' | sh -c 'read l; read k </dev/tty; echo "pager <$l> <$k>"'
		key
		? pager <from below> <key>`},
	{name: "in front of a pipeline, COMMAND reads the keyboard", play: `
		$ZK sh -c 'read k; echo "command <$k>"; read k' | cat
		key
		? command <key>
		^C
		? $
		echo code ${PIPESTATUS[0]}
		? code 130`},
	{name: "at the end of a pipeline, COMMAND reads the keyboard", nightly: true, play: `
		echo data | $ZK sh -c 'read l; read k </dev/tty; echo "<$l> <$k>"'
		key
		? <data> <key>`},
	{name: "a pipeline, Ctrl-C is caught", play: `
		$ZK bash tally | (trap "" INT; cat)
		? up
		^C
		? got INT
		! kill $(cat pid)
		? $
		echo code ${PIPESTATUS[0]}
		? code 3`},
	{name: "a pipeline, Ctrl-Z and fg", nightly: true, play: `
		$ZK cat | cat
		@ cat S+
		hello
		? hello
		^Z
		? Stopped
		? $
		fg
		hello
		? hello
		^D
		? $
		echo code ${PIPESTATUS[0]}
		? code 0`},
	{name: "a reader that ends", play: `
		$ZK yes | head -1; echo code ${PIPESTATUS[0]}
		? code 141`},
	{name: "10 MB into a slow reader", nightly: true, play: `
		$ZK head -c 10000000 /dev/zero | (read -t 0.5 -u 9 9<>/dev/null; sleep 0.3; wc -c)
		? 10000000`},
	{name: "less", nightly: true, play: `
		export TERM=vt100
		seq 1 500 | $ZK less
		? :
		@ less S+
		^Z
		? Stopped
		? $
		fg
		? :
		@ less S+
		q
		? $
		echo code $?
		? code 0`},

	// timeout, on either side; nohup, setsid, jobs of a script.
	{name: "timeout in front, COMMAND reads", nightly: true, play: `
		timeout 60 $ZK sh -c 'read x; echo "read $x"'
		hello
		? read hello
		? $`},
	{name: "timeout in front, in a script", script: "timeout 1 $ZK cat; echo code $?", play: `
		bash s
		? code 124`},
	{name: "timeout behind, the output is a file", play: `
		$ZK timeout 60 cat > out
		@ cat S
		one
		^D
		? $
		echo code $? $(cat out)
		? code 0 one`},
	{name: "nohup", play: `
		nohup $ZK sh -c 'kill -HUP $$; echo alive' < /dev/null > out 2>&1; echo code $? $(cat out)
		? code 0 alive`},
	{name: "setsid", nightly: true, play: `
		setsid -w $ZK sh -c 'test -t 0 && sh -c ": </dev/tty" 2>/dev/null || echo no terminal; exit 4'; echo code $?
		? no terminal
		? code 4`},
	{name: "a script with jobs of its own", script: "set -m; $ZK sleep 100 & kill %1; wait %1; echo code $?", play: `
		bash s
		? code 143`},
	{name: "& and wait", nightly: true, script: "$ZK sh -c 'exit 7' & wait $!; echo code $?; $ZK sh -c 'kill -USR1 $$' & wait $!; echo code $?", play: `
		dash s
		? code 7
		? code 138`},
	{name: "kill %1, each signal", play: `
		$ZK bash tally &
		? up
		kill -USR1 %1
		? got USR1
		kill -HUP %1
		? got HUP
		kill -INT %1
		? got INT
		kill -QUIT %1
		? got QUIT
		kill -TSTP %1
		? got TSTP
		kill -CONT %1
		? got CONT
		kill %1
		? got TERM`},
	{name: "kill, each signal", nightly: true, play: `
		$ZK bash tally &
		? up
		kill -USR2 $!
		? got USR2
		kill -HUP $!
		? got HUP
		kill $!
		? got TERM
		wait $!; echo code $?
		? code 3`},

	// Reading, writing, modes.
	{name: "a password", play: `
		$ZK bash -c 'read -s -p "Password: " p; echo; echo "got $p"'
		? Password:
		secret
		? got secret
		$ZK bash -c 'read -s -p "Password: " p; echo; echo "got $p"'
		? Password:
		^C
		? $
		echo code $?
		? code 130`},
	{name: "in the background, COMMAND reads", play: `
		$ZK sh -c 'read x; echo "read $x"' &
		@ job T
		true
		? Stopped
		fg
		hello
		? read hello
		? $`},
	{name: "in the background, COMMAND writes and may not", nightly: true, play: `
		stty tostop
		$ZK sh -c 'echo out; exit 6' &
		@ job T
		true
		? Stopped
		fg
		? out
		? $
		echo code $?
		? code 6`},
	{name: "stty tostop, in a pipeline", nightly: true, play: `
		stty tostop
		$ZK sh -c 'echo out >/dev/tty; exit 6' | cat; echo code ${PIPESTATUS[0]}
		? out
		? code 6`},
	{name: "an orphan in the background reads", nightly: true, play: `
		sh -c '$ZK sh -c "until [ -e go ]; do sleep 0.02; done; read x </dev/tty; echo code \$?" &'
		? $
		! touch go
		? code 1`},
	{name: "killed with SIGKILL, the script reads on", script: `sh -c 'echo $$ >pid; exec $ZK cat'
		until [ $(ps -o tpgid= -p $$) = $(ps -o pgid= -p $$) ]; do :; done
		read x; echo "read $x"`, play: `
		bash s
		@ cat S+
		! kill -KILL $(cat pid)
		? Killed
		@ bash S+
		hello
		? read hello`},

	// Without a shell.
	{name: "a terminal without a shell", nightly: true, leader: `$ZK sh -c 'echo ready; read x; echo "read $x"; exit 3'`, play: `
		? ready
		^Z
		hello
		? read hello`},
	{name: "a terminal without a shell, Ctrl-C", leader: `$ZK bash tally`, play: `
		? up
		^C
		? got INT
		! kill $(cat pid)
		? got TERM`},
	{name: "SIGTSTP and SIGCONT in quick succession", nightly: true, script: `$ZK sh -c 'echo up >up; exec sleep 100' & p=$!
		until [ -e up ]; do sleep 0.01; done
		for i in $(seq $1); do kill -TSTP $p; kill -CONT $p; done
		kill $p; wait $p; echo code $?`, play: `
		bash s ` + strconv.Itoa(10*rounds) + `
		? code 143`},
	// The kernel sends SIGHUP, and so may the shell that leads the session: it comes once or twice,
	// without zklock too.
	{name: "hang-up", script: `trap 'echo HUP >>log; exit' HUP; echo up; mkfifo f; exec 9<>f; while :; do read -t 0.02 -u 9; done`, play: `
		$ZK bash s
		? up
		hang up
		! until [ -s log ]; do sleep 0.01; done; [ "$(sort -u log)" = HUP ]`},
	{name: "a script without a shell above", nightly: true, leader: "sh s", script: "$ZK sleep 100; echo next", play: `
		@ sleep S+
		^C`},

	// What must differ.
	{name: "a closed input", differ: "a Go program opens /dev/null in place of a closed standard stream", play: `
		$ZK sh -c 'readlink /proc/self/fd/0' <&-
		? /dev/null`},
	{name: "SIGTERM is ignored from above", differ: "a Go program cannot know of an ignored TERM, QUIT or PIPE, and COMMAND starts with their default",
		script: `trap "" TERM; $ZK sh -c 'kill -TERM $$; echo alive'; echo code $?`, play: `
		bash s
		? code 143`},
	{name: "Ctrl-C in a script, COMMAND ends by itself, dash", nightly: true, differ: "COMMAND leads a process group: a Ctrl-C that it answers is COMMAND's alone, and dash goes on",
		script: `$ZK bash -c 'trap "exit 5" INT; echo up; while :; do sleep 0.02; done'; echo next $?`, play: `
		dash s
		? up
		^C
		? next 5`},
	{name: "timeout behind, in a script", nightly: true, differ: "COMMAND leads a process group: timeout(1) need not make one, and what it starts may read",
		script: `$ZK timeout 60 sh -c 'read x; echo "read $x"'`, play: `
		bash s
		@ sh S+
		hello
		? read hello`},
	{name: "a second Ctrl-C in a pipeline", differ: "zklock gets the Ctrl-C of a pipeline, and a second SIGINT ends everything at once", play: `
		$ZK bash tally | (trap "" INT; cat)
		? up
		^C
		? got INT
		! sleep 0.2
		^C
		? $
		echo code ${PIPESTATUS[0]}
		? code 130`},
	{name: "PID 1, COMMAND dies of a signal", nightly: true, differ: "the kernel lets no signal end a container's first process by default: zklock exits with 128 + n", play: `
		unshare -pf --mount-proc $ZK sh -c 'kill -TERM $$'; echo code $?
		? code 143`},

	{name: "PID 1", nightly: true, play: `
		unshare -pf --mount-proc $ZK sh -c 'read x; echo "read $x"; exit 9'; echo code $?
		hello
		? read hello
		? code 9`},
	{name: "PID 1, as docker stop ends it", play: `
		sh -c 'echo $$ >outer; exec unshare -pf --mount-proc $ZK bash tally'; echo code $?
		? up
		! pkill -TERM -P $(cat outer)
		? got TERM
		? code 3`},
	{name: "PID 1 without /proc", nightly: true, play: `
		unshare -pfm sh -c 'mount -t tmpfs none /proc; exec $ZK sh -c "read x; echo read \$x; exit 9"'; echo code $?
		hello
		? read hello
		? code 9`},

	// Two runs.
	{name: "two runs, one in the other", play: `
		$ZK $ZK2 bash tally
		? up
		^C
		? got INT
		^Z
		? got TSTP
		! kill $(cat pid)
		? $
		echo code $?
		? code 3
		$ZK $ZK2 cat
		@ cat S+
		^Z
		? Stopped
		? $
		fg
		@ cat S+
		hello
		? hello
		^C
		? $
		echo code $?
		? code 130`},
}

func TestScenes(t *testing.T) {
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	binary(t)
	for _, sc := range scenes {
		if sc.nightly && os.Getenv("ZKLOCK_ROUNDS") == "" {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			ours := sc.run(t, fmt.Sprintf("%s run -q -s %s --session-timeout %s --lease single --kill-after 500ms %s",
				binary(t), srv.Addr(), sessionTimeout, lockPath(t)))
			if sc.differ == "" {
				require.Equal(t, sc.run(t, ""), ours)
			}
		})
	}
}

// run plays the scene and returns what the screen showed.
func (sc scene) run(t *testing.T, zk string) string {
	t.Helper()
	leader := sc.leader
	if leader == "" {
		leader = "bash --norc --noprofile --noediting -i"
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"s": sc.script, "tally": tally} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if strings.Contains(sc.play, "unshare ") && os.Geteuid() != 0 {
		missing(t, "not root, and a PID namespace needs it")
	}
	for _, program := range []string{"bash", "dash", "less", "setsid", "timeout", "unshare"} {
		if _, err := exec.LookPath(program); err != nil && strings.Contains(leader+sc.script+sc.play, program+" ") {
			missing(t, err.Error())
		}
	}
	env := "ZK= ZK2="
	if zk != "" {
		env = fmt.Sprintf("ZK='%s --' ZK2='%s/inner --'", zk, zk)
	}
	s, cmd := onTerminal(t, "sh", "-c", "cd '"+dir+"' && export "+env+" && stty -echo && exec "+leader)
	if sc.leader == "" {
		s.expect("$ ")
	}
	for _, step := range strings.Split(strings.TrimSpace(sc.play), "\n") {
		step = strings.TrimSpace(step)
		kind, rest, _ := strings.Cut(step, " ")
		switch {
		case kind == "?":
			s.expect(rest)
		case kind == "@":
			name, state, _ := strings.Cut(rest, " ")
			eventually(t, step, func() bool { return inSession(cmd.Process.Pid, name, state) })
		case kind == "!":
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			shell := exec.CommandContext(ctx, "sh", "-c", rest)
			shell.Dir = dir
			out, err := shell.CombinedOutput()
			require.NoError(t, err, "%s: %s", step, out)
		case step == "hang up":
			require.NoError(t, s.master.Close())
		case len(step) == 2 && step[0] == '^':
			s.typ(string(step[1] & 0x1f))
		default:
			s.typ(step + "\n")
		}
	}
	if sc.leader == "" {
		return tidy(s.shown.String()[:s.seen])
	}
	code := exitOf(t, cmd)
	return tidy(fmt.Sprint(s.shown.String(), "exit code ", code))
}

// missing skips a test for what it needs and this machine does not have, if that may be.
func missing(t *testing.T, what string) {
	t.Helper()
	if zkserver.Required() {
		t.Fatal(what)
	}
	t.Skip(what)
}

var (
	blankLines = regexp.MustCompile(`\n+`)
	prompt     = regexp.MustCompile(`(?m)^(\$ )+`)
	ownLine    = regexp.MustCompile(`(?m)^(zklock: |==\d+==WARNING: reading executable name ).*\n`) // and the race detector's
	processID  = regexp.MustCompile(`(\[\d\]|line \d+:) +\d+`)
)

// tidy leaves out what differs between any two runs.
func tidy(shown string) string {
	shown = prompt.ReplaceAllString(strings.ReplaceAll(shown, "\r", ""), "") // beside what the background says
	shown = blankLines.ReplaceAllString(ownLine.ReplaceAllString(shown, ""), "\n")
	return processID.ReplaceAllString(shown, "$1 PID")
}

// inSession says whether a process of this name is in the state, as ps shows it, in a session.
func inSession(sid int, name, state string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		before, after, ok := strings.Cut(string(stat), ") ")
		f := strings.Fields(after) // state, parent, group, session, terminal, foreground group
		leader := strconv.Itoa(sid)
		if !ok || len(f) < 6 || f[3] != leader || !strings.HasSuffix(before, "("+name) && !(name == "job" && f[1] == leader) {
			continue
		}
		if f[0] == state[:1] && (len(state) == 1 || f[2] == f[5]) && (state != "T" || allStopped(filepath.Dir(file))) {
			return true
		}
	}
	return false
}

// allStopped says whether each thread of a process is stopped: not before does its parent hear of
// it.
func allStopped(proc string) bool {
	files, _ := filepath.Glob(proc + "/task/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		if _, after, ok := strings.Cut(string(stat), ") "); ok && after[0] != 'T' {
			return false
		}
	}
	return true
}
