import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/**
 * Takes permits with Curator's recipe: java Semaphore ADDRESS PATH LIMIT N LOG CALLERS ROUNDS.
 *
 * <p>The limit is shared in the node LIMIT, and starts with N. Each caller leaves its comings and goings in LOG.
 */
public final class Semaphore {
    public static void main(String[] args) throws Exception {
        int callers = Integer.parseInt(args[5]);
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            all.add(threads.submit(() -> {
                takePermits(args[0], args[1], args[2], Integer.parseInt(args[3]), args[4], Integer.parseInt(args[6]));
                return null;
            }));
        }
        int failed = 0;
        for (Future<?> one : all) {
            try {
                one.get();
            } catch (ExecutionException e) {
                e.getCause().printStackTrace();
                failed = 1;
            }
        }
        System.exit(failed);
    }

    private static void takePermits(String address, String path, String limit, int n, String log, int rounds) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryNTimes(3, 100))) {
            client.start();
            client.blockUntilConnected();
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
}
