package zkserver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestZooCfg(t *testing.T) {
	self := member{id: 2, client: 1, quorum: 2, election: 3}
	peer := member{id: 1, client: 4, quorum: 5, election: 6}

	tests := []struct {
		name string
		cfg  Config
		all  []member
		dir  string
		want string
	}{
		{
			name: "alone, all defaults",
			dir:  "/d",
			want: "tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\ninitLimit=20\nsyncLimit=5\n" +
				"dataDir=/d\nclientPortAddress=127.0.0.1\nclientPort=1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
		},
		{
			name: "ensemble, everything set, a Windows path",
			cfg: NewConfig(TickTime(200*time.Millisecond), SessionTimeouts(time.Second, 2*time.Second),
				InitLimit(7), SyncLimit(3), Line("a=b"), Line("tickTime=300")),
			all: []member{peer, self},
			dir: `C:\d`,
			want: "tickTime=200\nminSessionTimeout=1000\nmaxSessionTimeout=2000\ninitLimit=7\nsyncLimit=3\n" +
				"dataDir=C:/d\nclientPortAddress=127.0.0.1\nclientPort=1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n" +
				"server.1=127.0.0.1:5:6\nserver.2=127.0.0.1:2:3\na=b\ntickTime=300\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.cfg.withDefaults().zooCfg(self, tt.all, tt.dir))
		})
	}
}

func TestZooCfg_OnHostsOfTheirOwn(t *testing.T) {
	var all []member
	hosts := []Host{{IP: "10.0.0.1"}, {IP: "10.0.0.2", Lines: []string{"maxSessionTimeout=8000"}}}
	for id := 1; id <= 2; id++ {
		m, err := newMember(id, hosts)
		require.NoError(t, err)
		all = append(all, m)
	}
	cfg := NewConfig(On(hosts...)).withDefaults().zooCfg(all[1], all, "/d")
	require.Contains(t, cfg, "clientPortAddress=10.0.0.2\nclientPort=2181\n")
	require.Contains(t, cfg, "server.1=10.0.0.1:2888:3888\nserver.2=10.0.0.2:2888:3888\nmaxSessionTimeout=8000\n")
	_, err := newMember(3, hosts)
	require.ErrorContains(t, err, "no host")
}

func TestParseMode(t *testing.T) {
	mode, serves := parseMode("Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n")
	require.True(t, serves)
	require.Equal(t, "follower", mode)

	_, serves = parseMode("This ZooKeeper instance is not currently serving requests\n")
	require.False(t, serves)
}

func TestParseVersion(t *testing.T) {
	for answer, want := range map[string]string{
		"Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2023-10-28 12:00 UTC\nMode: standalone\n": "3.8.0",
		"Zookeeper version: 3.4.13-6--1, built on Sat, 28 Oct 2023 23:16:44 +0200\n":                      "3.4.13",
		"Zookeeper version: 3.9.3\n": "3.9.3",
	} {
		version, ok := parseVersion(answer)
		require.True(t, ok, answer)
		require.Equal(t, want, version)
	}
	for _, answer := range []string{"", "Zookeeper version: \n", "This ZooKeeper instance is not currently serving requests\n"} {
		_, ok := parseVersion(answer)
		require.False(t, ok, answer)
	}
}

func TestOlder(t *testing.T) {
	inOrder := []string{"3.4.13", "3.5", "3.5.1", "3.8.0", "3.9.3", "3.9.10", "3.10", "4"}
	for i, a := range inOrder {
		for j, b := range inOrder {
			require.Equal(t, i < j, Older(a, b), "%s before %s", a, b)
		}
	}
}

// A home lists the jars that ZooKeeper needs before it, and the jars that need ZooKeeper after it.
// So every jar that their manifests name is already in the class path.
func TestClassPath_Home(t *testing.T) {
	home := t.TempDir()
	lib := filepath.Join(home, "lib")
	require.NoError(t, os.Mkdir(lib, 0o755))
	t.Setenv(EnvHome, home)
	_, err := ClassPath()
	require.ErrorIs(t, err, ErrNotInstalled)

	for _, jar := range []string{"zookeeper-3.9.3.jar", "curator-client-5.7.1.jar", "zookeeper-jute-3.9.3.jar", "netty-all.jar"} {
		require.NoError(t, os.WriteFile(filepath.Join(lib, jar), nil, 0o644))
	}
	jars, err := ClassPath("curator-client")
	require.NoError(t, err)
	var names []string
	for _, jar := range jars {
		names = append(names, filepath.Base(jar))
	}
	require.Equal(t, []string{"netty-all.jar", "zookeeper-jute-3.9.3.jar", "zookeeper-3.9.3.jar", "curator-client-5.7.1.jar"}, names)
	require.Equal(t, "3.9.3", installation{classPath: jars}.version())
	require.Empty(t, installation{classPath: []string{"/usr/share/java/zookeeper.jar"}}.version())

	_, err = ClassPath("curator-none")
	require.ErrorIs(t, err, ErrNotInstalled, "neither here nor installed")
}

func TestParseMntr(t *testing.T) {
	require.Equal(t, map[string]string{"zk_watch_count": "12", "zk_server_state": "leader"},
		parseMntr("zk_watch_count\t12\nzk_server_state\tleader\nnot a counter\n"))
}

func TestFreePort_NeverTwice(t *testing.T) {
	seen := make(map[int]bool)
	for range 50 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, seen[port], "port %d came twice", port)
		require.GreaterOrEqual(t, port, lowestPort)
		require.Less(t, port, highestPort)
		seen[port] = true
	}
}
