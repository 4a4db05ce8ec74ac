import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.zookeeper.CreateMode;

/**
 * Takes permits with Curator's recipe: java Semaphore ADDRESS PATH LIMIT N LOG CALLERS ROUNDS.
 *
 * <p>The limit is shared in the node LIMIT, and starts with N. Each caller leaves its comings and goings in LOG.
 */
public final class Semaphore {
    public static void main(String[] args) throws Exception {
        int n = Integer.parseInt(args[3]);
        int rounds = Integer.parseInt(args[6]);
        Together.run(args[0], Integer.parseInt(args[5]), client -> takePermits(client, args[1], args[2], n, args[4], rounds));
    }

    private static void takePermits(CuratorFramework client, String path, String limit, int n, String log, int rounds) throws Exception {
        try (SharedCount count = new SharedCount(client, limit, n)) {
            count.start();
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, count);
            for (int i = 0; i < rounds; i++) {
                Lease lease = semaphore.acquire();
                client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(log + "/curator-in-1-");
                Thread.sleep(ThreadLocalRandom.current().nextInt(3));
                client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(log + "/curator-out-1-");
                semaphore.returnLease(lease);
                Thread.sleep(ThreadLocalRandom.current().nextInt(10));
            }
        }
    }
}
