package zkserver

import (
	"encoding/hex"
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

// The wanted values were printed by Java's own Random.
func TestSessionPassword_IsWhatJavaComputes(t *testing.T) {
	for id, want := range map[int64]string{
		0:                  "f22acd4a97e69d6d20a49bb638eadb38",
		1:                  "054cc74a37327db215e702e20c73f005",
		0x100a1b2c3d40000:  "ce09faed4372c2725ca437a7c4ebcd12",
		-2:                 "0dd532b5c441e3927c04b55e50fd9421",
		0x7fffffffffffffff: "20f62cb5648dc2d771471c8a2486a9ee",
	} {
		password := sessionPassword(id)
		require.Equal(t, want, hex.EncodeToString(password[:]), "session 0x%x", id)
	}
}

func TestParseMode(t *testing.T) {
	mode, serves := parseMode("Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n")
	require.True(t, serves)
	require.Equal(t, "follower", mode)

	_, serves = parseMode("This ZooKeeper instance is not currently serving requests\n")
	require.False(t, serves)
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
