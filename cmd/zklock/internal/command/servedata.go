package command

// The nodes with which serve begins: from --data, where it wrote them when it last ended, or from
// --load.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zklock/zklock/zktest"
)

const (
	dataFile    = "zklock-serve.json" // in the directory of --data
	dataVersion = 1
	dataLimit   = 2 << 30 // bytes
)

// dataOnDisk is the content of the file.
type dataOnDisk struct {
	Version int             `json:"version"`
	Zxid    int64           `json:"zxid"` // a client that has seen a later one is rejected
	Nodes   zktest.Snapshot `json:"nodes"`
}

type serveData struct {
	dir  string // "" for none
	load string // a snapshot file of a real server
}

// open returns options for the initial nodes, and their source, "" if there are none.
func (s serveData) open() (opts []zktest.Option, from string, err error) {
	if s.dir != "" {
		saved, err := s.read()
		if err != nil {
			return nil, "", fmt.Errorf("--data %w", err)
		}
		if saved != nil {
			return []zktest.Option{zktest.WithZxid(saved.Zxid), zktest.WithSnapshot(saved.Nodes)}, s.file(), nil
		}
	}
	if s.load == "" {
		return nil, "", nil
	}
	f, err := os.Open(s.load)
	if err != nil {
		return nil, "", fmt.Errorf("--load: %w", err)
	}
	defer f.Close()
	nodes, err := zktest.ReadSnapshot(f)
	if err != nil {
		return nil, "", fmt.Errorf("--load %s: %w", s.load, trim(err))
	}
	return []zktest.Option{zktest.WithSnapshot(nodes)}, s.load, nil
}

func (s serveData) file() string { return filepath.Join(s.dir, dataFile) }

// read reads the file, and returns nil if it does not exist yet. It verifies that one can be
// written.
func (s serveData) read() (*dataOnDisk, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	try, err := os.CreateTemp(s.dir, "."+dataFile)
	if err != nil {
		return nil, fmt.Errorf("%s: no file can be created in it: %w", s.dir, bare(err))
	}
	_, _ = try.Close(), os.Remove(try.Name())
	info, err := os.Stat(s.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > dataLimit:
		return nil, fmt.Errorf("%s is longer than 2 GiB", s.file())
	}
	text, err := os.ReadFile(s.file())
	if err != nil {
		return nil, err
	}
	var saved dataOnDisk
	switch err := json.Unmarshal(text, &saved); {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be used: %w; move it away to begin without nodes", s.file(), trim(err))
	case saved.Version != dataVersion || saved.Zxid < 0:
		return nil, fmt.Errorf("%s is of another version, %d: move it away to begin without nodes", s.file(), saved.Version)
	}
	return &saved, nil
}

// save writes the nodes of a server that is closed. A reader of the file finds the old nodes or the
// new ones, and no part.
func (s serveData) save(srv zkServer) error {
	if s.dir == "" {
		return nil
	}
	text, err := json.Marshal(dataOnDisk{dataVersion, srv.Zxid(), srv.Snapshot()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "."+dataFile)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.file())
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
