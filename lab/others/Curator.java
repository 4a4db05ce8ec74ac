import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2. */
public final class Curator extends Client {
    public static void main(String[] args) throws Exception {
        new Curator().run(args);
    }

    @Override
    Lock open() throws Exception {
        int ttl = Integer.parseInt(flags.get("-ttl"));
        CuratorFramework client = CuratorFrameworkFactory.newClient(flags.get("-servers"), ttl, ttl, new RetryNTimes(3, 100));
        client.getConnectionStateListenable().addListener((c, state) -> {
            // Curator's documentation: at SUSPENDED a holder cannot be certain any more that it holds.
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                lost(state.toString());
            }
        });
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        String path = "/" + flags.get("-lock");
        if (flags.get("-system").endsWith("-readers")) {
            return new ReadersWriter(client, path);
        }
        if (flags.get("-system").endsWith("-permits")) {
            return new Permits(client, path);
        }
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        return new Lock() {
            @Override
            public boolean acquire(long millis) throws Exception {
                return mutex.acquire(millis, TimeUnit.MILLISECONDS);
            }

            @Override
            public void release() throws Exception {
                mutex.release();
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }

    private static final class ReadersWriter implements Lock {
        private final CuratorFramework client;
        private final InterProcessReadWriteLock lock;
        private InterProcessMutex held;

        ReadersWriter(CuratorFramework client, String path) {
            this.client = client;
            lock = new InterProcessReadWriteLock(client, path);
        }

        private boolean take(InterProcessMutex side, long millis) throws Exception {
            boolean got = side.acquire(millis, TimeUnit.MILLISECONDS);
            if (got) {
                held = side;
            }
            return got;
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return take(lock.writeLock(), millis);
        }

        @Override
        public boolean acquireShared(long millis) throws Exception {
            return take(lock.readLock(), millis);
        }

        @Override
        public void downgrade() throws Exception {
            if (!take(lock.readLock(), 60_000)) {
                throw new IllegalStateException("a writer may not read");
            }
            lock.writeLock().release();
        }

        @Override
        public void release() throws Exception {
            held.release();
        }

        @Override
        public void close() {
            client.close();
        }
    }

    private static final class Permits implements Lock {
        private final CuratorFramework client;
        private final InterProcessSemaphoreV2 semaphore;
        private Lease lease;

        Permits(CuratorFramework client, String path) {
            this.client = client;
            semaphore = new InterProcessSemaphoreV2(client, path, 2);
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            lease = semaphore.acquire(millis, TimeUnit.MILLISECONDS);
            return lease != null;
        }

        @Override
        public void release() {
            semaphore.returnLease(lease);
        }

        @Override
        public void close() {
            client.close();
        }
    }
}
