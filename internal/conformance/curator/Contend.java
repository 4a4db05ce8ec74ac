import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;
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
        int contenders = Integer.parseInt(args[4]);
        int rounds = Integer.parseInt(args[5]);
        ExecutorService threads = Executors.newFixedThreadPool(contenders);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < contenders; i++) {
            all.add(threads.submit(() -> {
                contend(args[0], args[1], args[2], args[3], rounds);
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

    private static void contend(String address, String lock, String busy, String log, int rounds) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryNTimes(3, 100))) {
            client.start();
            client.blockUntilConnected();
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
}
