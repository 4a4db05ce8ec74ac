//go:build linux || darwin

package command

// Attacks the variables of the official ZooKeeper image: serve takes the place of a server that
// they were written for.

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
)

func TestServe_TakesTheOfficialVariables(t *testing.T) {
	t.Parallel()
	p := start(t, env("ZOO_TICK_TIME=300", "ZOO_MAX_CLIENT_CNXNS=7", "ZOO_4LW_COMMANDS_WHITELIST=conf, ruok", "ZOO_STANDALONE_ENABLED=true",
		"ZOO_ADMINSERVER_ENABLED=false", "ZOO_MY_ID=1", "ZOO_SERVERS=server.1=zoo1:2888:3888;2181", "ZOO_CFG_EXTRA=maxSessionTimeout=9000 minSessionTimeout=450 quorumListenOnAllIPs=true jute.maxbuffer=1000 znode.container.checkIntervalMs=9 zookeeper.enforceQuota=true",
		"ZOO_PORT_NUMBER=2181", "ZOO_LOG_DIR="), "serve", "--listen", "127.0.0.1:0")
	p.prints("for development only")
	require.Contains(t, p.stderr.String(), "zklock: serve ignores quorumListenOnAllIPs of $ZOO_CFG_EXTRA, jute.maxbuffer of $ZOO_CFG_EXTRA, "+
		"znode.container.checkIntervalMs of $ZOO_CFG_EXTRA, zookeeper.enforceQuota of $ZOO_CFG_EXTRA, $ZOO_PORT_NUMBER\n")
	require.NotContains(t, p.stderr.String(), "commands at")
	eventually(t, "the server prints its address", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	conf, err := rawzk.Word(strings.TrimSpace(p.stdout.String()), "conf")
	require.NoError(t, err)
	for _, want := range []string{"tickTime=300\n", "maxClientCnxns=7\n", "minSessionTimeout=450\n", "maxSessionTimeout=9000\n"} {
		require.Contains(t, conf, want)
	}

	p = start(t, env("ZOO_TICK_TIME=300", "ZOO_4LW_COMMANDS_WHITELIST=conf", "ZKLOCK_MAX_CLIENT_CNXNS=8", "ZOO_MAX_CLIENT_CNXNS=7"),
		"serve", "--listen", "127.0.0.1:0", "--tick", "400ms")
	eventually(t, "the server prints its address", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	conf, err = rawzk.Word(strings.TrimSpace(p.stdout.String()), "conf")
	require.NoError(t, err)
	require.Contains(t, conf, "tickTime=400\n", "a flag wins")
	require.Contains(t, conf, "maxClientCnxns=8\n", "and so does its variable")
}

func TestServe_RefusesOfficialVariables(t *testing.T) {
	for variable, says := range map[string]string{
		"ZOO_SERVERS=server.1=a:2888:3888;2181 server.2=b:2888:3888;2181": "$ZOO_SERVERS has 2 servers: an ensemble of serve is one process: give --members 2",
		"ZOO_TICK_TIME=2s":                     `$ZOO_TICK_TIME: tickTime is "2s": give a number`,
		"ZOO_CFG_EXTRA=maxSessionTimeout=-1":   `$ZOO_CFG_EXTRA: maxSessionTimeout is "-1": give a number`,
		"ZOO_TICK_TIME=0":                      "at least 1ms",
		"ZOO_CFG_EXTRA=maxSessionTimeout=3000": "two ticks",
		"ZOO_MAX_CLIENT_CNXNS=99999999999":     "give a number",
		"ZOO_CFG_EXTRA=minSessionTimeout=4s":   `WithConfig("minSessionTimeout=4s")`,
	} {
		p := start(t, env(variable), "serve", "--listen", "127.0.0.1:0")
		require.Equal(t, exitUsage, p.wait(), variable)
		require.Contains(t, p.stderr.String(), says)
	}
}

// Variables of servers that have no effect are named, and no others: not those of a Service, nor
// the options of Java's memory.
func TestServe_VariablesOfOtherImages_AreNamed(t *testing.T) {
	s := serving{}
	unknown, err := s.takeOfficial([]string{
		"ZOOKEEPER_CLIENT_PORT=2181", "ZOOKEEPER_TICK_TIME=2000", "JVMFLAGS=-Xmx1g -Djute.maxbuffer=4000000", "KAFKA_OPTS=-Djava.security.auth.login.config=x",
		"ZOOKEEPER_HOME=/opt/zk", "ZOOKEEPER_PORT=tcp://10.0.0.1:2181", "ZOOKEEPER_PORT_2181_TCP=tcp://10.0.0.1:2181", "ZOOKEEPER_SERVICE_HOST=10.0.0.1",
		"SERVER_JVMFLAGS=-Xmx1g", "ZOOKEEPER_SERVER_ID=", "PATH=/bin",
	}, func(string) bool { return false })
	require.NoError(t, err)
	require.Equal(t, []string{"$JVMFLAGS", "$KAFKA_OPTS", "$ZOOKEEPER_CLIENT_PORT", "$ZOOKEEPER_TICK_TIME"}, unknown)
}

func TestServe_AdminPort_OfTheOfficialImage(t *testing.T) {
	for value, want := range map[string]string{"true": "0.0.0.0:8080", "false": ""} {
		s := serving{listen: "0.0.0.0:2181"}
		unknown, err := s.takeOfficial([]string{"ZOO_ADMINSERVER_ENABLED=" + value, "ZOO_CFG_EXTRA=metricsProvider.httpPort=7001"}, func(string) bool { return false })
		require.NoError(t, err)
		require.Empty(t, unknown)
		require.Equal(t, want, s.admin)
		require.Equal(t, "0.0.0.0:7001", s.metrics)
	}
}

// The composition's command has flags that there are, and its variables are known.
func TestServe_Composition(t *testing.T) {
	text, err := os.ReadFile("../../../../packaging/compose/docker-compose.yml")
	require.NoError(t, err)
	var args []string
	require.NoError(t, json.Unmarshal([]byte(regexp.MustCompile(`(?m)^    command: (\[.*\])$`).FindStringSubmatch(string(text))[1]), &args))
	require.Equal(t, "serve", args[0])
	cmd := newServeCommand()
	require.NoError(t, cmd.ParseFlags(args[1:]))
	var variables []string
	for _, m := range regexp.MustCompile(`(?m)^      (ZOO_\w+): "?([^"\n]*)"?$`).FindAllStringSubmatch(string(text), -1) {
		variables = append(variables, m[1]+"="+m[2])
	}
	require.Len(t, variables, 5)
	s := serving{listen: cmd.Flag("listen").Value.String()}
	unknown, err := s.takeOfficial(variables, cmd.Flags().Changed)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Equal(t, serving{
		listen: "0.0.0.0:2181", tick: 2 * time.Second, whitelist: "srvr,ruok,mntr", admin: "0.0.0.0:8080", maxSessionTimeout: time.Minute,
	}, s)
}
