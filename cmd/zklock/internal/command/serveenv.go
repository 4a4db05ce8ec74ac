package command

// The variables of the official ZooKeeper image. Each corresponds to a setting of zoo.cfg, and each
// setting to a flag.

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// officialIgnored have no effect: they set a disk, Java, the image's directories, or elections,
// whose limits are fixed here. A server's id comes from its position in the ensemble.
var officialIgnored = []string{
	"ZOO_INIT_LIMIT", "ZOO_SYNC_LIMIT", "ZOO_STANDALONE_ENABLED", "ZOO_AUTOPURGE_PURGEINTERVAL", "ZOO_AUTOPURGE_SNAPRETAINCOUNT", "ZOO_MY_ID",
	"ZOO_CONF_DIR", "ZOO_DATA_DIR", "ZOO_DATA_LOG_DIR", "ZOO_LOG_DIR", "ZOO_LOG4J_PROP",
}

// takeOfficial applies the official image's variables, except where a flag is given. It returns the
// variables, and the settings of ZOO_CFG_EXTRA, that it does not know.
func (s *serving) takeOfficial(environ []string, given func(flag string) bool) (unknown []string, err error) {
	variables := map[string]string{}
	for _, one := range environ {
		name, value, _ := strings.Cut(one, "=")
		if value = strings.TrimSpace(value); value != "" && isSetting(name, value) {
			variables[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		switch value := variables[name]; name {
		case "ZOO_SERVERS":
			if n := len(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\n,", r) })); n > 1 {
				return nil, fmt.Errorf("$ZOO_SERVERS has %d servers: an ensemble of serve is one process: give --members %d and unset it", n, n)
			}
		case "ZOO_CFG_EXTRA":
			for _, setting := range strings.Fields(value) {
				key, value, _ := strings.Cut(setting, "=")
				known, err := s.takeSetting(key, value, given)
				if err != nil {
					return nil, fmt.Errorf("$ZOO_CFG_EXTRA: %w", err)
				}
				if !known {
					unknown = append(unknown, key+" of $ZOO_CFG_EXTRA")
				}
			}
		default:
			key := map[string]string{
				"ZOO_TICK_TIME": "tickTime", "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist", "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
				"ZOO_ADMINSERVER_ENABLED": "admin.enableServer",
			}[name]
			known, err := s.takeSetting(key, value, given)
			if err != nil {
				return nil, fmt.Errorf("$%s: %w", name, err)
			}
			if !known && !slices.Contains(officialIgnored, name) {
				unknown = append(unknown, "$"+name)
			}
		}
	}
	return unknown, nil
}

// isSetting reports whether a variable is of a server: of the official image or, with ZOOKEEPER_,
// of Confluent's. Kubernetes and Docker set variables for a Service or link with the name
// zookeeper. Java's have no effect, except those that set a property.
func isSetting(name, value string) bool {
	of, isConfluents := strings.CutPrefix(name, "ZOOKEEPER_")
	switch {
	case isConfluents:
		return of != "HOME" && of != "PORT" && !strings.HasPrefix(of, "PORT_") && !strings.HasPrefix(of, "SERVICE_")
	case name == "JVMFLAGS", name == "SERVER_JVMFLAGS", name == "KAFKA_OPTS":
		return strings.Contains(value, "-D")
	}
	return strings.HasPrefix(name, "ZOO_")
}

// passedOn are the settings that zktest gets as they are, with the flag that replaces each.
// ZooKeeper makes a system property of each name in zoo.cfg that it does not know, and puts
// zookeeper. before it. So jute.maxbuffer and znode.container.checkIntervalMs, whose properties
// have no such prefix, have no effect there, nor has a name that begins with zookeeper.
var passedOn = map[string]string{
	"minSessionTimeout": "", "syncLimit": "", "nio.sessionlessCnxnTimeout": "", "extendedTypesEnabled": "ttl-nodes",
	"enforceQuota": "enforce-quotas", "DigestAuthenticationProvider.superDigest": "super-digest",
}

// takeSetting applies a setting of zoo.cfg, unless its flag is given, and reports whether it is
// known.
func (s *serving) takeSetting(key, value string, given func(flag string) bool) (known bool, err error) {
	if flag, known := passedOn[key]; known {
		if flag == "" || !given(flag) {
			s.settings = append(s.settings, key+"="+value)
		}
		return true, nil
	}
	flag := map[string]string{
		"tickTime": "tick", "maxSessionTimeout": "max-session-timeout", "maxClientCnxns": "max-client-cnxns", "4lw.commands.whitelist": "whitelist",
		"admin.enableServer": "admin", "metricsProvider.httpPort": "metrics",
	}[key]
	if flag == "" || given(flag) {
		return flag != "", nil
	}
	n, notNumber := strconv.ParseInt(value, 10, 32)
	switch key {
	case "4lw.commands.whitelist":
		s.whitelist = value
		return true, nil
	case "admin.enableServer":
		if strings.EqualFold(value, "true") {
			s.admin = s.besideListen("8080")
		}
		return true, nil
	}
	if notNumber != nil || n < 0 {
		return true, fmt.Errorf("%s is %q: give a number", key, value)
	}
	switch key {
	case "tickTime":
		s.tick = time.Duration(n) * time.Millisecond
	case "maxSessionTimeout":
		s.maxSessionTimeout = time.Duration(n) * time.Millisecond
	case "maxClientCnxns":
		s.maxClientCnxns = n
	case "metricsProvider.httpPort":
		s.metrics = s.besideListen(value)
	}
	return true, nil
}

// besideListen returns the address of a port on the host of --listen.
func (s *serving) besideListen(port string) string {
	host, _, _ := net.SplitHostPort(s.listen)
	return net.JoinHostPort(host, port)
}
