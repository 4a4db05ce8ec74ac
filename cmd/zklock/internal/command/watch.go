package command

// The --watch flag of ls: a loop that reads the queues every second, and prints them if they have
// changed.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// watchInterval is the time between two reads.
const watchInterval = time.Second

// view is the queue of one lock as it was read last.
type view struct {
	path  string
	lock  lockEntry
	notes string // about the queue, for stderr
	isNew bool   // it differs from the read before

	changed string // lastChange before the read; "" if the queue has to be read again
	text    string // the queue and the notes, without times that differ in each read
}

// watchEndsWithin is how long watchUntil waits for a reader that does not read, when ctx has ended.
const watchEndsWithin = time.Second

// watchUntil watches the queues until ctx ends, even if a write cannot end because no reader takes
// the output.
func (l *listing) watchUntil(ctx context.Context, paths []string) error {
	ended := make(chan error, 1)
	go func() { ended <- l.watchQueues(ctx, paths) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(watchEndsWithin):
		return nil
	}
}

// watchQueues prints the queues of the paths, and again after each change, until ctx ends.
func (l *listing) watchQueues(ctx context.Context, paths []string) error {
	var views []*view
	for i, path := range paths {
		if !slices.Contains(paths[:i], path) {
			views = append(views, &view{path: path})
		}
	}
	for {
		for _, v := range views {
			err := l.look(ctx, v)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if slices.ContainsFunc(views, func(v *view) bool { return v.isNew }) {
			if err := l.show(views); err != nil {
				return err
			}
		}
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads a queue if it may have changed. A queue whose first node waits for a lock-delay
// changes without a change on the servers. If no server can be reached, a note reports that.
func (l *listing) look(ctx context.Context, v *view) error {
	v.isNew = false
	changed, err := l.lastChange(ctx, v.path)
	if err == nil && changed == v.changed {
		return nil
	}
	var notes strings.Builder
	if err == nil {
		stderr := l.stderr
		l.stderr = &notes
		var q lockQueue
		q, err = l.lister.queue(ctx, v.path)
		l.stderr = stderr
		if err == nil {
			v.lock = lockEntry{Path: v.path, Queue: entriesOf(q), Limit: q.limit}
		}
	}
	if err != nil {
		if err = classify(err); codeOf(err) != exitNoServer {
			return err
		}
		fmt.Fprintf(&notes, "zklock: %s: %v; the queue may have changed\n", v.path, err)
		changed = ""
	}
	v.changed, v.notes = changed, notes.String()
	text := v.notes
	if err == nil && len(v.lock.Queue) > 0 && !v.lock.Queue[0].Holds {
		v.changed, text = "", "" // the notes have a time that each read estimates again
	}
	timeless := slices.Clone(v.lock.Queue)
	for i := range timeless {
		timeless[i].AgeSeconds, timeless[i].DelayUntil = 0, nil
	}
	queue, err := json.Marshal(timeless)
	text += string(queue)
	v.isNew, v.text = text != v.text, text
	return err
}

// lastChange returns the zxids of the last changes of the nodes from which a queue is read. It
// costs four small requests, however long the queue is.
func (l *lister) lastChange(ctx context.Context, path string) (zxids string, err error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	for _, node := range []string{path, path + "/locks", path + "/leases", cmp.Or(l.limit, path+"/limit")} {
		stat, err := ask(ctx, l.s, func(c *zk.Conn) (*zk.Stat, error) {
			_, stat, err := c.Exists(l.at(node))
			return stat, err
		})
		if err != nil {
			return "", readable(err)
		}
		zxids += fmt.Sprintf("%x %x ", stat.Pzxid, stat.Mzxid)
	}
	return zxids, nil
}

// clearScreen moves the cursor of a terminal to its first line, and erases the rest.
const clearScreen = "\x1b[H\x1b[J"

// show prints the queues that are new. On a terminal it prints all of them, in place of the ones
// before.
func (l *listing) show(views []*view) error {
	if l.screen != nil && !l.asJSON {
		if _, err := io.WriteString(l.screen, clearScreen); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, v := range views {
		if !v.isNew && (l.screen == nil || l.asJSON) {
			continue
		}
		fmt.Fprint(l.stderr, v.notes)
		var err error
		if l.asJSON {
			err = json.NewEncoder(l.out).Encode(struct {
				Time time.Time `json:"time"`
				lockEntry
			}{now, v.lock})
		} else if _, err = fmt.Fprintf(l.out, "%s %s\n", now.Format(time.TimeOnly), v.path); err == nil {
			err = l.printer.queue(v.lock.Queue)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
