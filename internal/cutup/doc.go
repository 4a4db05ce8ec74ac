// Package cutup provides a network of hosts on one machine that can be partitioned. Each host is a
// Linux network namespace with an address of its own. All hosts are on one switch, and any
// direction between any two can be blocked and healed. Its tests run a real ZooKeeper ensemble on
// some hosts, with clients on others, and attack the promises of the lock with faults of the
// network and the machines: they are the parts chaos and soak of `make nightly`. In the long run,
// half of the clients are also behind proxies, where frames, connections and sessions fail.
//
// The switch is in a namespace too. The package adds nothing to the machine's own network, and
// cannot reach it or any network beyond it. It requires Linux, root, iproute2 and nftables.
package cutup
