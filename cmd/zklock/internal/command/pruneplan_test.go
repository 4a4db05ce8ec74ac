package command

// This test attacks the rules of prune: what has the shape of a lock that nobody uses, and what may
// not go.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// tree makes nodes as a walk sees them. A line is a path and words: used, new, queue (a node stands
// in it), session, acl=X, v=N, unread, at=N (all its times, in hours; the zxid is 10 times that)
// and last=N (the zxid of its last child), data=D. Lines come parents first.
func tree(lines string) (top *seenNode) {
	nodes := map[string]*seenNode{}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		n := &seenNode{path: words[0], isRead: true, acl: zk.WorldACL(zk.PermAll)}
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			number := int64(0)
			for _, c := range value {
				number = number*10 + int64(c-'0')
			}
			switch name {
			case "used":
				n.stat.Cversion = 2
			case "session":
				n.stat.EphemeralOwner = 7
			case "unread":
				n.isRead = false
			case "acl":
				n.acl = zk.DigestACL(zk.PermAll, value, value)
			case "v":
				n.stat.Version = int32(number)
			case "at":
				n.stat.Czxid, n.stat.Mzxid, n.stat.Pzxid = 10*number, 10*number, 10*number
				n.stat.Ctime, n.stat.Mtime = number*time.Hour.Milliseconds(), number*time.Hour.Milliseconds()
			case "last":
				n.stat.Pzxid = number
			case "data":
				n.data = []byte(strings.NewReplacer("_", " ", "0005", "\x00\x00\x00\x05").Replace(value))
				n.stat.DataLength = int32(len(n.data))
			}
		}
		nodes[n.path] = n
		if above := nodes[n.path[:strings.LastIndexByte(n.path, '/')]]; above == nil {
			top = n
		} else {
			above.children = append(above.children, n)
			above.stat.NumChildren++
			above.stat.Cversion++
			above.hasQueues = mayBeSemaphore(namesOf(above))
		}
	}
	return top
}

func namesOf(n *seenNode) (names []string) {
	for _, c := range n.children {
		names = append(names, c.name())
	}
	return names
}

// emptySemaphore is one whose first acquire made the limit.
const emptySemaphore = "/o\n/o/s\n/o/s/leases used\n/o/s/limit data=0005\n/o/s/locks used"

var prunings = map[string]struct {
	tree  string
	since int // hours; 0: whatever its age
	want  string
	left  string
}{
	"a lock":                               {"/o used", 0, "", "/o"},
	"a young lock":                         {"/o used at=5", 4, "", ""},
	"never used":                           {"/o", 0, "", ""},
	"somebody waits":                       {"/o used\n/o/_c_x-lock-0000000001 unread", 0, "", ""},
	"of a session":                         {"/o used session", 0, "", ""},
	"with data":                            {"/o used data=hello", 0, "", ""},
	"with words that are not a lock's":     {"/o used data=a=b", 0, "", ""},
	"of an early version":                  {"/o\n/o/1 used data=zklock/1_x", 0, "/o/1", ""},
	"data that was not read":               {"/o\n/o/1 used data=", 0, "/o/1", ""},
	"a holder disappeared":                 {"/o\n/o/1 used data=held=x_until=y\n/o/2 used", 0, "/o/2", "/o/1"},
	"may not be read":                      {"/o\n/o/1 unread\n/o/2 used", 0, "/o/2", ""},
	"parents":                              {"/o\n/o/1\n/o/1/lock used\n/o/2\n/o/2/lock used\n/o/2/config", 0, "/o/1/lock /o/1 /o/2/lock", ""},
	"deep":                                 {"/o\n/o/a\n/o/a/b\n/o/a/b/c used", 0, "/o/a/b/c /o/a/b /o/a", ""},
	"a parent with data":                   {"/o\n/o/1 data=x\n/o/1/lock used", 0, "/o/1/lock", ""},
	"a parent with an ACL of its own":      {"/o\n/o/1 acl=boss\n/o/1/lock used", 0, "/o/1/lock", ""},
	"a parent with the ACL of all":         {"/o\n/o/1 acl=a\n/o/1/lock used acl=a", 0, "/o/1/lock /o/1", ""},
	"the top is a folder":                  {"/o\n/o/1 used", 0, "/o/1", ""},
	"a semaphore":                          {emptySemaphore, 0, "/o/s", ""},
	"the top is a semaphore":               {strings.ReplaceAll(emptySemaphore[3:], "/o/s", "/s"), 0, "/s/*", ""},
	"without a limit":                      {strings.Replace(emptySemaphore, "/o/s/limit data=0005\n", "", 1), 0, "/o/s", ""},
	"its leases were never used":           {strings.Replace(emptySemaphore, "leases used", "leases", 1), 0, "/o/s", ""},
	"neither were used":                    {strings.ReplaceAll(emptySemaphore, " used", ""), 0, "", ""},
	"a limit that was set":                 {strings.Replace(emptySemaphore, "data=0005", "data=0005 v=1", 1), 0, "/o/s/*", ""},
	"a limit that is none":                 {strings.Replace(emptySemaphore, "data=0005", "data=1000000", 1), 0, "/o/s/*", ""},
	"a semaphore with something else":      {emptySemaphore + "\n/o/s/notes", 0, "/o/s/*", ""},
	"a limit that is not a semaphore's":    {"/o\n/o/limit data=0005\n/o/x used", 0, "/o/x", ""},
	"a lease is held":                      {strings.Replace(emptySemaphore, "/o/s/limit", "/o/s/leases/_c_x-lease-0000000001 unread\n/o/s/limit", 1), 0, "", ""},
	"a semaphore with a lock below it":     {emptySemaphore + "\n/o/s/x used", 0, "/o/s/x /o/s/* /o/s", ""},
	"its queue was not seen":               {strings.Replace(emptySemaphore, "/o/s/locks used", "/o/s/locks unread", 1), 0, "", ""},
	"folders that are called so":           {"/o\n/o/locks\n/o/locks/1 used\n/o/leases\n/o/leases/1 used", 0, "/o/locks/1 /o/locks /o/leases/1 /o/leases", ""},
	"a semaphore whose path has its ACL":   {strings.Replace(emptySemaphore, "/o/s\n", "/o/s acl=boss\n", 1), 0, "/o/s/*", ""},
	"young":                                {"/o\n/o/1 used at=3\n/o/2 used at=5", 4, "/o/1", ""},
	"old, and used after a young was made": {"/o\n/o/1 used at=1 last=51\n/o/2 used at=5\n/o/3 used at=1 last=49", 4, "/o/3", ""},
	"a parent that was used lately":        {"/o\n/o/1 at=1 last=51\n/o/1/lock used at=1\n/o/2 used at=5", 4, "/o/1/lock", ""},
	"a semaphore that was used lately":     {"/o\n/o/s at=1\n/o/s/leases used at=1 last=51\n/o/s/locks used at=1\n/o/t used at=5", 4, "", ""},
}

// With --with-path the top is like any other node.
var pruningsOfTheTop = map[string]struct{ tree, want string }{
	"a lock":                       {"/o used", "/o"},
	"a lock that is in use":        {"/o used\n/o/_c_x-lock-0000000001 unread", ""},
	"it becomes empty":             {"/o\n/o/1 used", "/o/1 /o"},
	"a folder with an ACL":         {"/o acl=boss\n/o/1 used", "/o/1"},
	"a folder with something else": {"/o\n/o/1 used\n/o/config", "/o/1"},
	"a semaphore":                  {strings.ReplaceAll(emptySemaphore[3:], "/o/s", "/s"), "/s"},
}

func TestPlanPruning(t *testing.T) {
	for name, c := range prunings {
		t.Run(name, func(t *testing.T) {
			var before time.Time
			if c.since > 0 {
				before = time.UnixMilli(int64(c.since) * time.Hour.Milliseconds())
			}
			goes, left := plannedFor(t, c.tree, false, before)
			require.Equal(t, c.want, goes)
			require.Equal(t, c.left, left)
		})
	}
	for name, c := range pruningsOfTheTop {
		t.Run("with the top: "+name, func(t *testing.T) {
			goes, left := plannedFor(t, c.tree, true, time.Time{})
			require.Equal(t, c.want, goes)
			require.Empty(t, left)
		})
	}
}

// plannedFor returns the paths of what goes, and of what is left; "/*" follows the path of a
// semaphore that stays without its nodes.
func plannedFor(t *testing.T, lines string, withTop bool, before time.Time) (_, _ string) {
	t.Helper()
	top, of := tree(lines), map[string]*seenNode{}
	var note func(n *seenNode)
	note = func(n *seenNode) {
		of[n.path] = n
		for _, c := range n.children {
			note(c)
		}
	}
	note(top)
	p := planPruning(top, withTop, before)
	var goes, left []string
	for _, r := range p.removals {
		if goes = append(goes, r.path); !slices.Contains(r.nodes, of[r.path]) {
			goes[len(goes)-1] += "/*"
		}
		require.Equal(t, r.what == pruneSemaphore, len(r.nodes) > 1)
	}
	for _, l := range p.left {
		left = append(left, l.path)
	}
	return strings.Join(goes, " "), strings.Join(left, " ")
}
