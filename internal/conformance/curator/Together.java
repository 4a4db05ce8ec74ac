import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;

/** Callers that do the same side by side, each with a client of its own. */
final class Together {
    interface Work {
        void with(CuratorFramework client) throws Exception;
    }

    private Together() {
    }

    /** Ends the process when all are through, with 1 if one has failed. */
    static void run(String address, int callers, Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            all.add(threads.submit(() -> {
                try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryNTimes(3, 100))) {
                    client.start();
                    client.blockUntilConnected();
                    work.with(client);
                }
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
}
