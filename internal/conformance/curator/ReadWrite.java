import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

/**
 * Takes Curator's write lock on a path, and then its read lock: java ReadWrite ADDRESS LOCK.
 *
 * <p>It says whether it got each, waiting two seconds at most, and keeps it until it reads a line.
 */
public final class ReadWrite {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 30_000, 10_000, new RetryNTimes(3, 100))) {
            client.start();
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, args[1]);
            for (InterProcessMutex one : new InterProcessMutex[] {lock.writeLock(), lock.readLock()}) {
                boolean got = one.acquire(2, TimeUnit.SECONDS);
                System.out.println((one == lock.writeLock() ? "write " : "read ") + got);
                in.readLine();
                if (got) {
                    one.release();
                }
            }
        }
    }
}
