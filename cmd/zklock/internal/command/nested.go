package command

// A run inside a run: COMMAND of a run starts zklock again, for a lock that the outer run holds. It
// would wait for its own parent.

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

// The variables that describe a run's hold to COMMAND, for a run inside it. envNode is the switch:
// without it there is no outer run.
const (
	envNode  = "ZKLOCK_NODE"
	envToken = "ZKLOCK_TOKEN"
	envOuter = "ZKLOCK_OUTER" // the holds of the runs around that one, the nearest first: TOKEN:NODE TOKEN:NODE…
)

// outerHold is a hold of a run around this one.
type outerHold struct {
	node  string // absolute
	token int64  // the czxid of the node; 0 if it is not known
}

// String returns the hold in the form of envOuter, without a space.
func (h outerHold) String() string {
	return strconv.FormatInt(h.token, 10) + ":" + (&url.URL{Path: h.node}).EscapedPath()
}

// outerHolds returns the holds that the runs around this one have put into the environment, the
// nearest first.
func outerHolds(getenv func(string) string) (holds []outerHold) {
	node := getenv(envNode)
	if node == "" {
		return nil
	}
	token, _ := strconv.ParseInt(getenv(envToken), 10, 64)
	holds = append(holds, outerHold{node, token})
	for _, word := range strings.Fields(getenv(envOuter)) {
		number, escaped, _ := strings.Cut(word, ":")
		token, err := strconv.ParseInt(number, 10, 64)
		node, bad := url.PathUnescape(escaped)
		if err == nil && bad == nil && strings.HasPrefix(node, "/") {
			holds = append(holds, outerHold{node, token})
		}
	}
	return holds
}

// outerWords returns the value of envOuter for a run inside this one.
func outerWords(holds []outerHold) string {
	words := make([]string, len(holds))
	for i, h := range holds {
		words[i] = h.String()
	}
	return strings.Join(words, " ")
}

// checkOuter rejects a run that would wait for a run around it. It ignores a node that was deleted,
// that belongs to another lock or to other servers, or that cannot be read.
func (o *runOptions) checkOuter(ctx context.Context, s *zklock.Session, r recipe, holds []outerHold) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.connectTimeout, errNoServer{o.connectTimeout})
	defer cancel()
	permits, limit := int64(0), o.semaphore
	for _, h := range holds {
		if h.node != r.held+"/"+nameOf(h.node) || !stands(ctx, s, h) {
			continue
		}
		if o.semaphore > 0 {
			permits += permitsOf(childrenOf(ctx, s, r.held), nameOf(h.node))
			if n, err := r.limit(ctx); err == nil { // the flag has only the initial limit
				limit = int64(n)
			}
		}
		if what := o.waitsFor(h, permits, limit); what != "" {
			return exitf(exitUsage, "%s: %s: COMMAND of that run has started this one (node %s). Leave this run out; or, if it is not to be part of that one, start it without %s",
				o.path, what, h.node, envNode)
		}
	}
	return nil
}

// waitsFor returns why this run would wait for a run around it that has this hold, or "" if it
// would not. For a semaphore, permits of limit belong to the runs around it. A reader inside a
// reader would run today, and hang as soon as a writer queues in between, so it is always rejected.
func (o *runOptions) waitsFor(h outerHold, permits, limit int64) string {
	switch {
	case o.shared && modeOf(nameOf(h.node)) == modeShared:
		return "a run around this one reads, and this one would wait for it indefinitely as soon as a writer queues between them"
	case o.semaphore == 0:
		return "a run around this one holds the lock, and this one would wait for it indefinitely"
	case permits+o.permits > limit:
		return fmt.Sprintf("runs around this one have %d of the %d permits, and this one would wait for them indefinitely", permits, limit)
	}
	return ""
}

// stands reports whether the node of a hold exists.
func stands(ctx context.Context, s *zklock.Session, h outerHold) bool {
	stat, _ := statOf(ctx, s, h.node)
	return stat != nil && (h.token == 0 || stat.Czxid == h.token)
}

// permitsOf returns how many of the leases belong to the hold that has the lease with this name.
func permitsOf(leases []string, name string) (n int64) {
	id, isOurs := queue.ProtectionID(name)
	if !isOurs {
		return 1
	}
	for _, lease := range leases {
		if other, _ := queue.ProtectionID(lease); other == id {
			n++
		}
	}
	return max(n, 1)
}
