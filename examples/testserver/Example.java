import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** What a test does with ZklockServer: a lock whose holder loses its session. */
public final class Example {
    public static void main(String[] args) throws Exception {
        try (ZklockServer server = new ZklockServer("--tick", "200ms");
                CuratorFramework holder = start(server);
                CuratorFramework other = start(server)) {
            new InterProcessMutex(holder, "/locks/job").acquire();
            InterProcessMutex mutex = new InterProcessMutex(other, "/locks/job");
            check(!mutex.acquire(100, TimeUnit.MILLISECONDS), "the lock is held");
            server.expire(holder.getZookeeperClient().getZooKeeper().getSessionId());
            check(mutex.acquire(5, TimeUnit.SECONDS), "the session of the holder is over");
            server.stop();
            server.restart();
            check(other.checkExists().forPath("/locks/job") != null, "nodes survive a restart");
            server.reset();
            try (CuratorFramework next = start(server)) {
                check(next.checkExists().forPath("/locks") == null, "the next test finds no nodes");
            }
            System.out.println("ok");
        }
    }

    private static CuratorFramework start(ZklockServer server) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(server.getConnectString(), 4000, 4000, new RetryOneTime(100));
        client.start();
        return client;
    }

    private static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }
}
