//go:build linux

package cutup

// Network: the hosts, their switch, and the directions that are blocked.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// prefix begins the names of all namespaces that this package creates; the id of the process
// follows.
const prefix = "zkcut-"

var made atomic.Int64 // how many networks this process made

// Network is a switch with hosts on it. It is safe for use by several goroutines.
type Network struct {
	name  string // of its namespaces; the host's name follows
	hosts []*Host

	mu struct {
		sync.Mutex
		blocked map[direction]bool
	}
}

type direction struct{ from, to *Host }

// Missing returns what this machine lacks for a Network, or "".
func Missing() string {
	if os.Geteuid() != 0 {
		return "not root, and network namespaces need it"
	}
	for _, tool := range []struct{ command, pkg string }{{"ip", "iproute2"}, {"nft", "nftables"}} {
		if _, err := exec.LookPath(tool.command); err != nil {
			return "no " + tool.command + " (Debian: apt-get install " + tool.pkg + ")"
		}
	}
	return ""
}

// New creates a network with the named hosts. It first removes the leftovers of processes that were
// killed. The caller closes it.
func New(names ...string) (*Network, error) {
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	n := &Network{name: fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), made.Add(1))}
	n.mu.blocked = make(map[direction]bool)
	if err := n.build(names); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build(names []string) error {
	if err := run(nil, "ip", "netns", "add", n.space("switch")); err != nil {
		return err
	}
	// No spanning tree, so that a port forwards at once.
	plug := "link add br0 type bridge stp_state 0\nlink set br0 up\n"
	for i, name := range names {
		h := &Host{net: n, name: name, ip: fmt.Sprintf("10.213.7.%d", i+1)}
		if err := run(nil, "ip", "netns", "add", h.Namespace()); err != nil {
			return err
		}
		n.hosts = append(n.hosts, h)
		plug += fmt.Sprintf("link add p%[1]d type veth peer name eth0 netns %[2]s\nlink set p%[1]d master br0 up\n", i+1, h.Namespace())
	}
	if err := run([]byte(plug), "ip", "-n", n.space("switch"), "-batch", "-"); err != nil {
		return err
	}
	for _, h := range n.hosts {
		up := fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n", h.ip)
		if err := run([]byte(up), "ip", "-n", h.Namespace(), "-batch", "-"); err != nil {
			return err
		}
	}
	return n.filter(`table bridge cut {
	set blocked { type ipv4_addr . ipv4_addr; }
	chain pass { type filter hook forward priority 0; ip saddr . ip daddr @blocked drop; }
}`)
}

// space is the name of a namespace of this network.
func (n *Network) space(host string) string { return n.name + "-" + host }

// Host returns the host of that name, which must exist.
func (n *Network) Host(name string) *Host {
	for _, h := range n.hosts {
		if h.name == name {
			return h
		}
	}
	panic("cutup: no host " + name)
}

// Block drops all packets from one host to the other from now on, but not in the other direction.
func (n *Network) Block(from, to *Host) error { return n.change(map[direction]bool{{from, to}: true}) }

// Cut blocks both directions between the host and each of the other hosts, in one step.
func (n *Network) Cut(h *Host, others ...*Host) error { return n.change(bothWays(true, h, others)) }

// Mend opens both directions between the host and each of the other hosts.
func (n *Network) Mend(h *Host, others ...*Host) error { return n.change(bothWays(false, h, others)) }

// Heal opens every direction.
func (n *Network) Heal() error {
	open := make(map[direction]bool)
	n.mu.Lock()
	for d := range n.mu.blocked {
		open[d] = false
	}
	n.mu.Unlock()
	return n.change(open)
}

func bothWays(blocked bool, h *Host, others []*Host) map[direction]bool {
	m := make(map[direction]bool)
	for _, o := range others {
		m[direction{h, o}], m[direction{o, h}] = blocked, blocked
	}
	return m
}

// change blocks and opens directions. The filter applies them in one transaction: no packet sees
// half of it.
func (n *Network) change(want map[direction]bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var add, remove []string
	for d, blocked := range want {
		pair := d.from.ip + " . " + d.to.ip
		switch {
		case blocked && !n.mu.blocked[d]:
			add = append(add, pair)
		case !blocked && n.mu.blocked[d]:
			remove = append(remove, pair)
		}
	}
	var rules strings.Builder
	for _, step := range []struct {
		verb  string
		pairs []string
	}{{"add", add}, {"delete", remove}} {
		if len(step.pairs) > 0 {
			fmt.Fprintf(&rules, "%s element bridge cut blocked { %s }\n", step.verb, strings.Join(step.pairs, ", "))
		}
	}
	if rules.Len() == 0 {
		return nil
	}
	if err := n.filter(rules.String()); err != nil {
		return err
	}
	for d, blocked := range want {
		if blocked {
			n.mu.blocked[d] = true
		} else {
			delete(n.mu.blocked, d)
		}
	}
	return nil
}

func (n *Network) filter(rules string) error {
	return run([]byte(rules), "ip", "netns", "exec", n.space("switch"), "nft", "-f", "-")
}

// Close removes the network. Processes on its hosts should have ended: a namespace lasts until its
// last process has ended.
func (n *Network) Close() error {
	return removeSpaces(func(name string) bool { return strings.HasPrefix(name, n.name+"-") })
}

// removeLeftovers removes the namespaces of processes that have ended.
func removeLeftovers() error {
	return removeSpaces(func(name string) bool {
		rest, ours := strings.CutPrefix(name, prefix)
		pid, _, _ := strings.Cut(rest, "-")
		if _, err := strconv.Atoi(pid); !ours || err != nil {
			return false
		}
		_, err := os.Stat("/proc/" + pid)
		return errors.Is(err, os.ErrNotExist)
	})
}

func removeSpaces(which func(name string) bool) error {
	names, err := spaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return !which(name) }) {
		errs = append(errs, run(nil, "ip", "netns", "del", name))
	}
	return errors.Join(errs...)
}

func spaces() ([]string, error) {
	entries, err := os.ReadDir("/run/netns")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func run(stdin []byte, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
