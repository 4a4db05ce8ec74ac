import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.zookeeper.CreateMode;

/**
 * Contends for a lock with Curator's recipe: java Contend ADDRESS LOCK BUSY LOG CONTENDERS ROUNDS.
 *
 * <p>Whoever is in makes the node BUSY, which fails if somebody else is in, and leaves its number in the queue, and who
 * it is, in LOG.
 */
public final class Contend {
    /** A mutex that tells the path of its node. */
    private static final class Named extends InterProcessMutex {
        Named(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[5]);
        Together.run(args[0], Integer.parseInt(args[4]), client -> contend(client, args[1], args[2], args[3], rounds));
    }

    private static void contend(CuratorFramework client, String lock, String busy, String log, int rounds) throws Exception {
        Named mutex = new Named(client, lock);
        for (int i = 0; i < rounds; i++) {
            mutex.acquire();
            String node = mutex.node();
            client.create().withMode(CreateMode.EPHEMERAL).forPath(busy);
            client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL)
                .forPath(log + "/" + node.substring(node.length() - 10) + "-curator-");
            client.delete().forPath(busy);
            mutex.release();
            Thread.sleep(ThreadLocalRandom.current().nextInt(10)); // or all stay in the order in which they began
        }
    }
}
