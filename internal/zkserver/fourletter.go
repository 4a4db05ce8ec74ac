package zkserver

// The four-letter words, with which a server reports its state.

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// askTimeout bounds one request. A server that serves responds in milliseconds; a paused server
// never does.
const askTimeout = 2 * time.Second

// FourLetter sends a four-letter word and returns the response.
func (s *Server) FourLetter(word string) (string, error) {
	addr := s.addr
	conn, err := s.self.dial(addr)
	if err != nil {
		return "", fmt.Errorf("%s to %s: %w", word, addr, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return "", fmt.Errorf("%s to %s: %w", word, addr, err)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s to %s: %w", word, addr, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("%s to %s: %w", word, addr, err)
	}
	return string(answer), nil
}

// Mntr returns the metrics of the server at addr, by name.
func Mntr(addr string) (map[string]string, error) { return (&Server{addr: addr}).Mntr() }

// Mntr returns the server's metrics by name.
func (s *Server) Mntr() (map[string]string, error) {
	answer, err := s.FourLetter("mntr")
	if err != nil {
		return nil, err
	}
	values := parseMntr(answer)
	if len(values) == 0 {
		return nil, fmt.Errorf("mntr to %s: %s", s.addr, strings.TrimSpace(answer))
	}
	return values, nil
}

// Mode returns "standalone", "leader" or "follower", or an error while the server at addr does not
// serve.
func Mode(addr string) (string, error) { return (&Server{addr: addr}).Mode() }

// Mode returns "standalone", "leader" or "follower", or an error while the server does not serve.
func (s *Server) Mode() (string, error) {
	answer, err := s.FourLetter("srvr")
	if err != nil {
		return "", err
	}
	says, serves := parseMode(answer)
	if !serves {
		return "", fmt.Errorf("srvr to %s: %s", s.addr, strings.TrimSpace(answer))
	}
	return says, nil
}

// Version returns the version of the ZooKeeper at addr, for example "3.8.0".
func Version(addr string) (string, error) { return (&Server{addr: addr}).Version() }

// Version returns the server's version, for example "3.8.0".
func (s *Server) Version() (string, error) {
	answer, err := s.FourLetter("srvr")
	if err != nil {
		return "", err
	}
	version, ok := parseVersion(answer)
	if !ok {
		return "", fmt.Errorf("srvr to %s: %s", s.addr, strings.TrimSpace(answer))
	}
	return version, nil
}

// Older reports whether version a comes before b: 3.4.13 before 3.5, and 3.5 before 3.5.1.
func Older(a, b string) bool {
	numbers := func(version string) (all []int) {
		for part := range strings.SplitSeq(version, ".") {
			n, _ := strconv.Atoi(part)
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b)) < 0
}

// parseVersion returns the version in the response to srvr, without the packager's part.
func parseVersion(answer string) (string, bool) {
	for line := range strings.Lines(answer) {
		if rest, ok := strings.CutPrefix(line, "Zookeeper version: "); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
			return rest[:max(end, 0)], end > 0
		}
	}
	return "", false
}

// parseMntr parses the response to mntr: a name, a tab and a value in each line.
func parseMntr(answer string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(line, "\t"); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	return values
}

// parseMode returns the mode in the response to srvr, and false while the server does not serve.
func parseMode(answer string) (mode string, serves bool) {
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode:"); ok {
			return strings.TrimSpace(mode), true
		}
	}
	return "", false
}
