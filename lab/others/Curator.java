import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Curator's InterProcessMutex. */
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
        InterProcessMutex mutex = new InterProcessMutex(client, "/" + flags.get("-lock"));
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
}
