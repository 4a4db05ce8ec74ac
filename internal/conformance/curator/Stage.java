import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * What the scenes have in common: named clients of one server, and a transcript in which nothing is left that
 * differs from run to run. Session ids are said as the client's name, and protection ids are left out.
 */
final class Stage {
    /** Waits end here; a scene that comes to it fails, so that two servers never agree by failing. */
    private static final long PATIENCE_MS = 20_000;

    private final String address;
    private final Map<String, CuratorFramework> clients = new LinkedHashMap<>();
    private final Map<Long, String> sessions = Collections.synchronizedMap(new LinkedHashMap<>());
    private final Map<String, List<ConnectionState>> states = new LinkedHashMap<>();

    Stage(String address) {
        this.address = address;
    }

    static void say(String format, Object... args) {
        System.out.println(String.format(format, args));
    }

    /**
     * The client of that name, connected; made when first asked for. It does not follow the ensemble's configuration:
     * Curator asks for that twice behind the back of a program that is connected already, and a count of requests that
     * begins then has them in it.
     */
    CuratorFramework client(String name) throws Exception {
        CuratorFramework known = clients.get(name);
        if (known != null) {
            return known;
        }
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(10_000)
                .connectionTimeoutMs(10_000).retryPolicy(new RetryNTimes(40, 100)).ensembleTracker(false).build();
        List<ConnectionState> seen = Collections.synchronizedList(new ArrayList<>());
        client.getConnectionStateListenable().addListener((c, state) -> seen.add(state));
        client.start();
        client.blockUntilConnected();
        clients.put(name, client);
        states.put(name, seen);
        learn(name);
        return client;
    }

    /** Ends the scene: all its clients go. */
    void clear() {
        clients.values().parallelStream().forEach(CuratorFramework::close);
        clients.clear();
        states.clear();
        sessions.clear();
    }

    private void learn(String name) throws Exception {
        sessions.put(clients.get(name).getZookeeperClient().getZooKeeper().getSessionId(), name);
    }

    private String owner(long session) throws Exception {
        if (!sessions.containsKey(session)) {
            for (String name : clients.keySet()) {
                learn(name);
            }
        }
        return sessions.getOrDefault(session, "somebody");
    }

    /** Kills the client's session on the server, and returns when the client has a new one. */
    void killSession(String name) throws Exception {
        ZooKeeper victim = clients.get(name).getZookeeperClient().getZooKeeper();
        List<ConnectionState> seen = states.get(name);
        int before = seen.size();
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper killer = new ZooKeeper(address, victim.getSessionTimeout(), event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        }, victim.getSessionId(), victim.getSessionPasswd());
        if (!connected.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("cannot take the session of " + name);
        }
        killer.close();
        await("a new session for " + name, () -> seen.subList(before, seen.size()).contains(ConnectionState.RECONNECTED));
        // Now and then Curator goes on with LOST and RECONNECTED. That is between its threads: without a SUSPENDED
        // before it, no connection was closed.
        List<ConnectionState> all = new ArrayList<>(seen.subList(before, seen.size()));
        say("  session of %s killed: it sees %s", name, all.subList(0, all.indexOf(ConnectionState.RECONNECTED) + 1));
    }

    /** Waits until something is so. */
    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(5);
        }
    }

    /** Waits until the node has so many children. */
    void awaitChildren(String path, int n) throws Exception {
        CuratorFramework c = client("onlooker");
        await(n + " children of " + path, () -> {
            try {
                return c.getChildren().forPath(path).size() == n;
            } catch (KeeperException.NoNodeException e) {
                return n == 0;
            }
        });
    }

    /** Prints the node and all below it: whose they are, their data, and the parts of their stat that recur. */
    void tree(String path) throws Exception {
        for (String line : lines(path, new ArrayList<>())) {
            say("  | %s", line);
        }
    }

    private List<String> lines(String path, List<String> lines) throws Exception {
        CuratorFramework c = client("onlooker");
        Stat stat = new Stat();
        byte[] data;
        try {
            data = c.getData().storingStatIn(stat).forPath(path);
        } catch (KeeperException.NoNodeException e) {
            lines.add(path + " is not there");
            return lines;
        }
        String owner = stat.getEphemeralOwner() == 0 ? ""
            : " of " + owner(stat.getEphemeralOwner());
        lines.add(String.format("%s%s version=%d cversion=%d aversion=%d children=%d data=%s", plain(path), owner,
            stat.getVersion(), stat.getCversion(), stat.getAversion(), stat.getNumChildren(), text(data)));
        List<String> children = c.getChildren().forPath(path);
        children.sort((a, b) -> plain(a).compareTo(plain(b)));
        for (String child : children) {
            lines(path.equals("/") ? "/" + child : path + "/" + child, lines);
        }
        return lines;
    }

    /** A path without what is random in it. */
    static String plain(String path) {
        return path.replaceAll("_c_[0-9a-f-]{36}-", "").replaceAll("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID");
    }

    /** Data, but for the address that recipes write down. */
    static String text(byte[] data) {
        if (data == null) {
            return "null";
        }
        String s = new String(data, StandardCharsets.UTF_8);
        return s.matches("[0-9]+(\\.[0-9]+){3}") ? "ADDRESS" : "'" + s + "'";
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    /** How something ended: what it returned, or what it threw. */
    static String outcome(Callable<?> act) {
        try {
            return String.valueOf(act.call());
        } catch (KeeperException e) {
            return e.code().toString();
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }
}
