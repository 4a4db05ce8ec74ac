import java.util.List;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.zookeeper.CreateMode;

/**
 * Reads and writes under Curator's read/write lock: java ReadersWriters ADDRESS LOCK BUSY CONTENDERS ROUNDS DOWNGRADES.
 *
 * <p>Whoever is in makes a node below BUSY, a writer w and a reader r-, and then looks who else is there: beside a writer nobody, beside
 * a reader no writer. With DOWNGRADES, some writers go on as readers.
 */
public final class ReadersWriters {
    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[4]);
        Together.run(args[0], Integer.parseInt(args[3]),
            client -> contend(client, args[1], args[2], rounds, Boolean.parseBoolean(args[5])));
    }

    private static void contend(CuratorFramework client, String path, String busy, int rounds, boolean downgrades) throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
        for (int i = 0; i < rounds; i++) {
            if (i % 3 != 0) {
                lock.readLock().acquire();
                client.delete().forPath(enter(client, busy, false));
                lock.readLock().release();
            } else {
                lock.writeLock().acquire();
                String writer = enter(client, busy, true);
                boolean reads = downgrades && i % 2 == 0;
                if (reads) {
                    lock.readLock().acquire();
                }
                client.delete().forPath(writer);
                String reader = reads ? enter(client, busy, false) : null;
                lock.writeLock().release();
                if (reads) {
                    Thread.sleep(ThreadLocalRandom.current().nextInt(10));
                    client.delete().forPath(reader);
                    lock.readLock().release();
                }
            }
            Thread.sleep(ThreadLocalRandom.current().nextInt(10));
        }
    }

    private static String enter(CuratorFramework client, String busy, boolean writes) throws Exception {
        String node = writes
            ? client.create().withMode(CreateMode.EPHEMERAL).forPath(busy + "/w")
            : client.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(busy + "/r-");
        List<String> there = client.getChildren().forPath(busy);
        if (writes ? there.size() > 1 : there.contains("w")) {
            throw new IllegalStateException((writes ? "a writer" : "a reader") + " is in beside " + there);
        }
        return node;
    }
}
