import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** The lab's client with Curator's InterProcessMutex. The lines it takes and gives are those of client.go. */
public final class Client {
    private static final Map<String, String> flags = new HashMap<>();
    private static boolean believes; // guarded by the class

    private static synchronized void say(String text) {
        Instant now = Instant.now();
        System.out.println((now.getEpochSecond() * 1_000_000 + now.getNano() / 1000) + " " + text.replace('\n', ' '));
        System.out.flush();
    }

    private static CuratorFramework open() throws Exception {
        int ttl = Integer.parseInt(flags.get("-ttl"));
        CuratorFramework client = CuratorFrameworkFactory.newClient(flags.get("-servers"), ttl, ttl, new RetryNTimes(3, 100));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        return client;
    }

    // Curator's documentation: at SUSPENDED a holder cannot be certain any more that it holds.
    private static synchronized void changed(ConnectionState state) {
        if (believes && (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST)) {
            believes = false;
            say("lost " + state);
        }
    }

    private static synchronized void now(boolean held, String text) {
        believes = held;
        say(text);
    }

    private static synchronized void write() {
        say(believes ? "write - looked" : "refrained");
    }

    private static void crowd(int n, long gap, long hold) throws Exception {
        List<InterProcessMutex> locks = new ArrayList<>();
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            locks.add(new InterProcessMutex(open(), "/" + flags.get("-lock")));
        }
        for (int i = 0; i < n; i++) {
            int me = i;
            Thread thread = new Thread(null, () -> {
                try {
                    locks.get(me).acquire();
                    say("grant " + me + " -");
                    Thread.sleep(hold);
                    say("left " + me);
                    locks.get(me).release();
                } catch (Exception e) {
                    say("failed " + e);
                }
            }, "waiter", 256 << 10);
            all.add(thread);
            thread.start();
            Thread.sleep(gap);
        }
        say("waiting");
        for (Thread thread : all) {
            thread.join();
        }
        say("done");
    }

    private static void cycle(InterProcessMutex mutex, long millis) throws Exception {
        int count = 0;
        for (long end = System.nanoTime() + millis * 1_000_000; System.nanoTime() < end; count++) {
            mutex.acquire();
            mutex.release();
        }
        say("cycled " + count);
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i + 1 < args.length; i += 2) {
            flags.put(args[i], args[i + 1]);
        }
        CuratorFramework client = open();
        client.getConnectionStateListenable().addListener((c, state) -> changed(state));
        InterProcessMutex mutex = new InterProcessMutex(client, "/" + flags.get("-lock"));
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] w = line.split(" ");
            switch (w[0]) {
                case "acquire":
                    try {
                        if (mutex.acquire(Long.parseLong(w[1]), TimeUnit.MILLISECONDS)) {
                            now(true, "acquired -");
                        } else {
                            say("busy");
                        }
                    } catch (Exception e) {
                        say("failed " + e);
                    }
                    break;
                case "release":
                    now(false, "releasing");
                    try {
                        mutex.release();
                        say("released");
                    } catch (Exception e) {
                        say("unreleased " + e);
                    }
                    break;
                case "write":
                    write();
                    break;
                case "blind":
                    say("write - blind");
                    break;
                case "crowd":
                    crowd(Integer.parseInt(w[1]), Long.parseLong(w[2]), Long.parseLong(w[3]));
                    break;
                case "cycle":
                    cycle(mutex, Long.parseLong(w[1]));
                    break;
                case "quit":
                    client.close();
                    System.exit(0);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }
}
