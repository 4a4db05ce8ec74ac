package zktest

import "strings"

// validPath reports whether a node may have the path. The rules are ZooKeeper's, which counts in
// UTF-16: it rejects characters that need a surrogate pair there, and text that is not valid UTF-8.
func validPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	if path == "/" {
		return true
	}
	for _, name := range strings.Split(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	for _, r := range path {
		switch {
		case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
			return false
		}
	}
	return true
}

// specialPath reports whether the node is the server's own, which no client can delete.
func specialPath(path string) bool {
	switch path {
	case "/", "/zookeeper", quotaRoot, configNode:
		return true
	}
	return false
}
