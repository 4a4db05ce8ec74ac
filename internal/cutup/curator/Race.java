import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Holds a lock of Curator's through one server, and waits for it through the others, once for each session timeout:
 * java Race OLD OTHERS PATH MILLIS... When somebody cuts OLD off, it tells when the holder's listener was told and when
 * the next holder had the lock, in lines "time timeout event". It ends with its standard input.
 */
public final class Race {
    public static void main(String[] args) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 3; i < args.length; i++) {
            int timeout = Integer.parseInt(args[i]);
            String path = args[2] + "/" + timeout;
            CuratorFramework holder = client(args[0], timeout);
            holder.getConnectionStateListenable().addListener((c, state) -> say(timeout, state.name()));
            InterProcessMutex held = new InterProcessMutex(holder, path);
            held.acquire();
            say(timeout, "held");

            CuratorFramework next = client(args[1], timeout);
            InterProcessMutex waiting = new InterProcessMutex(next, path);
            Thread waiter = new Thread(() -> {
                try {
                    waiting.acquire();
                    say(timeout, "granted");
                } catch (Exception e) {
                    say(timeout, "failed " + e);
                }
            });
            waiter.setDaemon(true);
            waiter.start();
            while (waiting.getParticipantNodes().size() < 2) {
                Thread.sleep(20);
            }
            say(timeout, "queued");
            clients.add(holder);
            clients.add(next);
        }
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }

    private static CuratorFramework client(String servers, int timeout) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(timeout)
            .connectionTimeoutMs(timeout).retryPolicy(new ExponentialBackoffRetry(1000, 29)).build();
        c.start();
        c.blockUntilConnected();
        return c;
    }

    private static synchronized void say(int timeout, String event) {
        System.out.println(System.currentTimeMillis() + " " + timeout + " " + event);
        System.out.flush();
    }
}
