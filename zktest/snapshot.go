package zktest

// Snapshots outside the server: as JSON, and in the format of real servers.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"math"

	"github.com/zklock/zklock/internal/wire"
)

// savedNode is a node of a snapshot outside the server.
type savedNode struct {
	Path      string     `json:"path"`
	Data      []byte     `json:"data"` // null is null, and not empty
	ACL       []savedACL `json:"acl,omitempty"`
	Container bool       `json:"container,omitempty"`
	TTL       int64      `json:"ttl_ms,omitempty"`
	Creates   int32      `json:"creates,omitempty"`
}

type savedACL struct {
	Perms  int32  `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// MarshalJSON returns the nodes by path, each with its data in base64, its ACL, its kind, and its
// count of creates. It omits /zookeeper/config.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	nodes := []savedNode{}
	if s.tree == nil {
		s.tree = newTree()
	}
	for _, path := range s.tree.sortedNodes() {
		n := s.tree.nodes[path]
		if n.kind == ephemeral || path == configNode {
			continue
		}
		saved := savedNode{Path: path, Data: n.data, Container: n.kind == container, Creates: n.creates}
		if n.kind == ttl {
			saved.TTL = n.ttl
		}
		for _, a := range n.acl {
			saved.ACL = append(saved.ACL, savedACL{a.Perms, a.Scheme, a.ID.ID})
		}
		nodes = append(nodes, saved)
	}
	return json.Marshal(nodes)
}

// UnmarshalJSON reads the output of MarshalJSON, or JSON that a test contains: a parent must come
// before its children, and a node without an ACL is open to any client. If it returns an error, the
// snapshot is unchanged.
func (s *Snapshot) UnmarshalJSON(text []byte) error {
	var nodes []savedNode
	if err := json.Unmarshal(text, &nodes); err != nil {
		return fmt.Errorf("zktest: a snapshot is a list of nodes: %w", err)
	}
	t, err := treeOf(nodes)
	if err == nil {
		s.tree = t
	}
	return err
}

// treeOf adds the nodes to the nodes of a new server.
func treeOf(nodes []savedNode) (*tree, error) {
	t := newTree()
	seen := make(map[string]struct{}, len(nodes))
	for _, saved := range nodes {
		if !validPath(saved.Path) {
			return nil, fmt.Errorf("zktest: no node of a snapshot can have the path %.100q", saved.Path)
		}
		_, twice := seen[saved.Path]
		parent, name := splitPath(saved.Path)
		n := t.nodes[saved.Path]
		switch {
		case twice:
			return nil, fmt.Errorf("zktest: the snapshot has %.100q twice", saved.Path)
		case t.nodes[parent] == nil:
			return nil, fmt.Errorf("zktest: the snapshot has %.100q before its parent, or without it", saved.Path)
		case saved.TTL < 0, saved.TTL > 0 && saved.Container, (saved.TTL > 0 || saved.Container) && specialPath(saved.Path):
			return nil, fmt.Errorf("zktest: %.100q can be a container or have a TTL of 1 ms or more, and not both", saved.Path)
		case saved.Path == configNode:
			continue
		case n == nil:
			n = &node{children: make(map[string]struct{})}
			t.nodes[parent].addChild(name)
		}
		seen[saved.Path] = struct{}{}
		n.data, n.creates, n.acl = saved.Data, saved.Creates, nil
		for _, a := range saved.ACL {
			n.acl = append(n.acl, wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}})
		}
		if len(n.acl) == 0 {
			n.acl = worldAnyone
		}
		switch {
		case saved.Container:
			n.kind = container
		case saved.TTL > 0:
			n.kind, n.ttl = ttl, saved.TTL
		}
		t.insert(saved.Path, n)
	}
	own := newTree()
	for path, n := range t.nodes {
		created := len(n.children)
		if mine := own.nodes[path]; mine != nil {
			created -= len(mine.children) // that no create has counted
		}
		n.creates = max(n.creates, int32(created))
	}
	return t, nil
}

// snapshotLimit is the size of the largest file that ReadSnapshot reads.
const snapshotLimit = 1 << 30

var (
	errCompressed = errors.New("zktest: the snapshot is compressed: gunzip a .gz; for .snappy, have the server write another, without snapshot.compression.method")
	errNoSnapshot = errors.New("zktest: this is no snapshot of ZooKeeper: give a file snapshot.ZXID from the version-2 directory of a server's dataDir")
)

// ReadSnapshot reads the snapshot of a real server, a file such as dataDir/version-2/snapshot.2c,
// so that a test can use the nodes of production. It omits /zookeeper/config and ephemeral nodes,
// whose sessions do not exist here. It returns an error for a file that is compressed, damaged, or
// longer than 1 GiB. It does not read the server's logs, which hold the changes after the snapshot.
func ReadSnapshot(r io.Reader) (Snapshot, error) {
	file, err := io.ReadAll(io.LimitReader(r, snapshotLimit+1))
	switch {
	case err != nil:
		return Snapshot{}, fmt.Errorf("zktest: reading the snapshot: %w", err)
	case len(file) > snapshotLimit:
		return Snapshot{}, errors.New("zktest: the snapshot is longer than 1 GiB")
	case bytes.HasPrefix(file, []byte{0x1f, 0x8b}), bytes.HasPrefix(file, []byte("\x82SNAPPY\x00")):
		return Snapshot{}, errCompressed
	}
	d := wire.NewDecoder(file)
	magic, version, _ := d.Int32(), d.Int32(), d.Int64()
	if magic != 'Z'<<24|'K'<<16|'S'<<8|'N' || version != 2 {
		return Snapshot{}, errNoSnapshot
	}
	nodes, err := readNodes(d)
	if err == nil {
		checked := adler32.Checksum(file[:len(file)-len(d.Rest())])
		if sum, end := d.Int64(), d.Text(); d.Err() != nil || sum != int64(checked) || end != "/" {
			err = errors.New("its checksum differs")
		}
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("zktest: the snapshot is damaged, or was not written to its end: %w", err)
	}
	t, err := treeOf(nodes)
	return Snapshot{t}, err
}

// readNodes reads the sessions, the ACLs and the nodes, in the format of DataTree.serialize.
func readNodes(d *wire.Decoder) (nodes []savedNode, err error) {
	for range countOf(d, 12) {
		_, _ = d.Int64(), d.Int32() // a session and its timeout
	}
	acls := map[int64][]savedACL{-1: {{wire.PermAll, "world", "anyone"}}}
	for range countOf(d, 12) {
		id := d.Int64()
		for range countOf(d, 12) {
			acls[id] = append(acls[id], savedACL{d.Int32(), d.Text(), d.Text()})
		}
	}
	for {
		n := savedNode{Path: d.Text()}
		if n.Path == "/" || d.Err() != nil {
			return nodes, d.Err()
		}
		var known bool
		n.Data = d.Buffer()
		if n.ACL, known = acls[d.Int64()]; !known && d.Err() == nil {
			return nil, fmt.Errorf("the ACL of %.100q is missing", n.Path)
		}
		_, _, _, _ = d.Int64(), d.Int64(), d.Int64(), d.Int64() // czxid, mzxid, ctime, mtime
		_, creates, _ := d.Int32(), d.Int32(), d.Int32()        // version, cversion, aversion
		owner := d.Int64()
		_ = d.Int64() // pzxid
		n.Creates = creates
		if n.Path == "" {
			n.Path = "/"
		}
		switch {
		case owner == math.MinInt64:
			n.Container = true
		case uint64(owner)>>40 == 0xff0000:
			n.TTL = owner & (1<<40 - 1)
		case owner != 0:
			continue
		}
		nodes = append(nodes, n)
	}
}

// countOf reads the number of elements that follow, each at least size bytes long. If more are
// announced than the rest can hold, it returns one more than fits, and reading them fails.
func countOf(d *wire.Decoder, size int) int {
	return min(max(int(d.Int32()), 0), len(d.Rest())/size+1)
}
