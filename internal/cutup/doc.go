// Package cutup is a network of hosts on one machine, to be cut up: each host is a Linux network namespace with an
// address of its own, all of them are on one switch, and any direction between any two can be blocked and healed.
// Its tests run a real ZooKeeper ensemble on such hosts, with clients on others, and attack the promises of the
// lock with what a network and its machines do: they are `make chaos` and `make soak`. In the long run, half of the clients
// are behind proxies besides, where frames, connections and sessions fail.
//
// The switch is in a namespace too. Nothing is added to the machine's own network, and nothing here can reach it
// or anything beyond it. It takes Linux, root, iproute2 and nftables.
package cutup
