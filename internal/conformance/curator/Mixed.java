import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * Takes part with one of Curator's recipes until there is a node over: java Mixed ADDRESS DIR mutex|names|readwrite|semaphore|selector|latch.
 *
 * <p>Sessions and processes get killed. mixed_test.go says what whoever is in does, so that the servers can tell who is in.
 */
public final class Mixed {
    private static final int CONTENDERS = 2;
    private static final int LIMIT = 3;
    private static final int SESSION = 6_000;
    private static final int PATIENCE = 20;

    /** Two are in that must not be. */
    private static final class Beside extends RuntimeException {
        Beside(String what) {
            super(what);
        }
    }

    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    private static final class Writer extends InterProcessReadWriteLock.WriteLock {
        Writer(CuratorFramework client, String path) {
            super(client, path, null);
        }

        String node() {
            return getLockPath();
        }
    }

    private static final class Reader extends InterProcessReadWriteLock.ReadLock {
        Reader(CuratorFramework client, String path, Writer writer) {
            super(client, path, null, writer);
        }

        String node() {
            return getLockPath();
        }
    }

    private final CuratorFramework client;
    private final String dir;
    private final String lock;
    private String name = ""; // the lock's suffix

    private Mixed(CuratorFramework client, String dir) {
        this.client = client;
        this.dir = dir;
        this.lock = dir + "/lock";
    }

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < CONTENDERS; i++) {
            threads.add(new Thread(() -> contend(args[0], args[1], args[2])));
        }
        for (Thread t : threads) {
            t.start();
        }
        for (Thread t : threads) {
            t.join();
        }
        System.exit(0);
    }

    private static void contend(String address, String dir, String recipe) {
        while (true) {
            try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, SESSION, 5_000, new RetryNTimes(3, 100))) {
                client.start();
                client.blockUntilConnected();
                Mixed m = new Mixed(client, dir);
                while (client.checkExists().forPath(dir + "/over") == null) {
                    m.round(recipe);
                    Thread.sleep(ThreadLocalRandom.current().nextInt(10));
                }
                return;
            } catch (Beside e) {
                System.out.println("BESIDE: " + e.getMessage());
                System.exit(3);
            } catch (Exception e) {
                System.out.println("again: " + e); // its session was killed
            }
        }
    }

    private void round(String recipe) throws Exception {
        switch (recipe) {
            case "mutex", "names" -> {
                if (recipe.equals("names")) { // one of the next three, as mixed_worker_test.go
                    int grants = client.checkExists().forPath(dir + "/log").getNumChildren();
                    name = "-" + (grants / 5 + ThreadLocalRandom.current().nextInt(3)) % 500;
                }
                Mutex m = new Mutex(client, lock + name);
                if (m.acquire(PATIENCE, TimeUnit.SECONDS)) {
                    try {
                        write(m.node());
                    } finally {
                        m.release();
                    }
                }
            }
            case "readwrite" -> {
                Writer w = new Writer(client, lock);
                Reader r = new Reader(client, lock, w);
                boolean writes = ThreadLocalRandom.current().nextInt(3) == 0;
                InterProcessMutex m = writes ? w : r;
                if (m.acquire(PATIENCE, TimeUnit.SECONDS)) {
                    try {
                        if (writes) {
                            write(w.node());
                        } else {
                            share(r.node(), "r");
                        }
                    } finally {
                        m.release();
                    }
                }
            }
            case "semaphore" -> {
                InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(client, lock, LIMIT);
                Lease lease = s.acquire(PATIENCE, TimeUnit.SECONDS);
                if (lease != null) {
                    try {
                        share(lock + "/leases/" + lease.getNodeName(), "p1");
                    } finally {
                        s.returnLease(lease);
                    }
                }
            }
            case "latch" -> {
                try (LeaderLatch latch = new LeaderLatch(client, lock, "curator")) {
                    latch.start();
                    if (latch.await(PATIENCE, TimeUnit.SECONDS)) {
                        lead();
                    }
                }
            }
            default -> select();
        }
    }

    private void select() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        Exception[] failed = new Exception[1];
        try (LeaderSelector selector = new LeaderSelector(client, lock, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) {
                try {
                    lead();
                } catch (Exception e) {
                    failed[0] = e; // Curator drops what is thrown here
                }
                done.countDown();
            }
        })) {
            selector.setId("curator");
            selector.start();
            if (done.await(PATIENCE, TimeUnit.SECONDS)) {
                for (int i = 0; i < 1000 && selector.hasLeadership(); i++) { // it gives the leadership up after takeLeadership
                    Thread.sleep(1);
                }
            }
        }
        if (failed[0] != null) {
            throw failed[0];
        }
    }

    /** Curator does not tell a leader's node. It is the one in front, if that is of this session. */
    private void lead() throws Exception {
        List<String> all = client.getChildren().forPath(lock);
        if (all.isEmpty()) {
            return;
        }
        String front = lock + "/" + Collections.min(all, Comparator.comparing((String name) -> name.substring(name.length() - 10)));
        Stat stat = client.checkExists().forPath(front);
        if (stat != null && stat.getEphemeralOwner() == client.getZookeeperClient().getZooKeeper().getSessionId()) {
            write(front);
        } else {
            System.out.println("lost: not in front");
        }
    }

    private CuratorOp check(String node) throws Exception {
        return client.transactionOp().check().withVersion(-1).forPath(node);
    }

    /** Makes a mark, unless the lock node is gone. */
    private String enter(String node, String mark, CreateMode mode) throws Exception {
        try {
            return client.transaction().forOperations(check(node),
                client.transactionOp().create().withMode(mode).forPath(dir + "/busy/" + mark)).get(1).getResultPath();
        } catch (KeeperException.NoNodeException e) {
            System.out.println("lost: " + node);
            return null;
        } catch (KeeperException.NodeExistsException e) {
            throw new Beside(node + " is in, and so is another");
        }
    }

    private void leave(String node, String mark, String kind, CuratorOp... more) throws Exception {
        List<CuratorOp> ops = new ArrayList<>(Arrays.asList(check(node), client.transactionOp().delete().forPath(mark),
            client.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL)
                .forPath(dir + "/log/curator-" + kind + "-" + node.substring(node.length() - 10) + "-")));
        ops.addAll(Arrays.asList(more));
        try {
            client.transaction().forOperations(ops);
        } catch (KeeperException.NoNodeException e) {
            System.out.println("lost: " + node);
        }
    }

    private void write(String node) throws Exception {
        String mark = enter(node, "w" + name, CreateMode.EPHEMERAL);
        if (mark == null) {
            return;
        }
        List<String> there = client.getChildren().forPath(dir + "/busy");
        if (there.contains("w") && there.size() > 1) {
            throw new Beside(node + " writes beside " + there);
        }
        int count = Integer.parseInt(new String(client.getData().forPath(dir + "/count" + name), StandardCharsets.UTF_8));
        leave(node, mark, "w",
            client.transactionOp().setData().forPath(dir + "/count" + name, Integer.toString(count + 1).getBytes(StandardCharsets.UTF_8)));
    }

    private void share(String node, String kind) throws Exception {
        String mark = enter(node, kind + "-", CreateMode.EPHEMERAL_SEQUENTIAL);
        if (mark == null) {
            return;
        }
        List<String> there = client.getChildren().forPath(dir + "/busy");
        int used = 0;
        for (String name : there) {
            used += name.startsWith("p") ? name.charAt(1) - '0' : 0;
        }
        if (there.contains(mark.substring(mark.lastIndexOf('/') + 1)) && (there.contains("w") || used > LIMIT)) {
            throw new Beside(node + " is in beside " + there);
        }
        Thread.sleep(ThreadLocalRandom.current().nextInt(3));
        leave(node, mark, kind);
    }
}
