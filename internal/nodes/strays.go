package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
)

// Find looks below root for what was made with our protection id, in up-to-date state, until it is told what there is, or refused. It
// returns the nodes in the order of their numbers: those that one transaction makes have one id. All who look at the same time share one sync and one list (R69).
func (r *Reaper) Find(root, id string) (found []string, err error) {
	for backoff := (link.Backoff{}); ; {
		l := r.lists.ListSynced(root)
		err := l.Wait(context.Background(), r.z)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case answer.IsRefusal(err):
			return nil, err
		case err == nil:
			for _, n := range l.Names {
				if got, ok := queue.ProtectionID(n); ok && got == id {
					found = append(found, root+"/"+n)
				}
			}
			slices.Sort(found)
			return found, nil
		case !r.z.Pause(backoff.Next()):
			return nil, r.z.OverErr()
		}
	}
}

// NoteStray remembers the id of a create whose node nobody has seen, and which may be there all the same: the list that
// looked for it was refused; or it showed nothing, but a server may still read the create from the socket of the old
// connection, where nothing says that the session has moved. The id is kept until a list of later has been searched for it
// (R74); but of very many, as under a root that refuses lists for long, not all are kept (I7).
func (r *Reaper) NoteStray(root, id string) {
	const most = 1000
	r.mu.Lock()
	if len(r.mu.strays) < most {
		r.mu.strays[id] = root
	}
	begin := !r.mu.looking
	r.mu.looking = true
	r.mu.Unlock()
	if begin {
		r.z.Carrier.Spawn(r.lookForStrays)
	}
}

// lookForStrays lists the roots of strays every third of a session timeout until there are none. A list that succeeds has
// shown what there is (eraseStrays), and the strays that were noted that long before it need no other.
func (r *Reaper) lookForStrays() {
	for {
		r.mu.Lock()
		strays := maps.Clone(r.mu.strays)
		r.mu.looking = len(strays) > 0
		r.mu.Unlock()
		if len(strays) == 0 || !r.z.Pause(r.z.Timeout()/3) {
			return
		}
		listed := map[string]bool{}
		for id, root := range strays {
			if _, asked := listed[root]; !asked {
				err := r.lists.ListSynced(root).Wait(context.Background(), r.z)
				listed[root] = err == nil || errors.Is(err, zk.ErrNoNode)
			}
			if listed[root] {
				r.mu.Lock()
				delete(r.mu.strays, id)
				r.mu.Unlock()
			}
		}
	}
}

// eraseStrays deletes the strays that a list shows.
func (r *Reaper) eraseStrays(root string, names []string) {
	r.mu.Lock()
	var found []string
	if len(r.mu.strays) > 0 {
		for _, n := range names {
			if id, ok := queue.ProtectionID(n); ok {
				if _, stray := r.mu.strays[id]; stray {
					found = append(found, n)
				}
			}
		}
	}
	for _, n := range found { // several may have one id
		id, _ := queue.ProtectionID(n)
		delete(r.mu.strays, id)
	}
	r.mu.Unlock()
	for _, n := range found {
		r.Erase(root + "/" + n)
	}
}
