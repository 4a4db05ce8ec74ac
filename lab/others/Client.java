import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The lab's client in Java, whatever its lock is. The lines it takes and gives are those of client.go. */
abstract class Client {
    /** One client's end of the lock. It is used by one thread. */
    interface Lock {
        boolean acquire(long millis) throws Exception;

        /** The same as a reader. */
        default boolean acquireShared(long millis) throws Exception {
            throw new UnsupportedOperationException();
        }

        /** Makes a writer a reader. */
        default void downgrade() throws Exception {
            throw new UnsupportedOperationException();
        }

        void release() throws Exception;

        void close() throws Exception;
    }

    final Map<String, String> flags = new HashMap<>();
    private boolean believes; // guarded by this

    /** Connects a client. */
    abstract Lock open() throws Exception;

    static void say(String text) {
        synchronized (Client.class) {
            Instant now = Instant.now();
            System.out.println((now.getEpochSecond() * 1_000_000 + now.getNano() / 1000) + " " + text.replace('\n', ' '));
            System.out.flush();
        }
    }

    /** Is called when the client learns that it holds no more. */
    final synchronized void lost(String why) {
        if (believes) {
            believes = false;
            say("lost " + why);
        }
    }

    private synchronized void now(boolean held, String text) {
        believes = held;
        say(text);
    }

    private synchronized void downgrading() {
        if (believes) {
            say("downgrading");
        }
    }

    private synchronized void write() {
        say(believes ? "write - looked" : "refrained");
    }

    private void crowd(int n, long gap, long hold) throws Exception {
        List<Lock> locks = new ArrayList<>();
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            locks.add(open());
        }
        for (int i = 0; i < n; i++) {
            int me = i;
            Thread thread = new Thread(null, () -> {
                try {
                    if (!locks.get(me).acquire(600_000)) {
                        throw new IllegalStateException("not granted in ten minutes");
                    }
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

    private static void cycle(Lock lock, long millis) throws Exception {
        int count = 0;
        for (long end = System.nanoTime() + millis * 1_000_000; System.nanoTime() < end; count++) {
            if (!lock.acquire(10_000)) {
                throw new IllegalStateException("a free lock is not granted");
            }
            lock.release();
        }
        say("cycled " + count);
    }

    final void run(String[] args) throws Exception {
        for (int i = 0; i + 1 < args.length; i += 2) {
            flags.put(args[i], args[i + 1]);
        }
        Lock lock = open();
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] w = line.split(" ");
            switch (w[0]) {
                case "acquire":
                    try {
                        boolean shared = w.length > 2;
                        long millis = Long.parseLong(w[1]);
                        if (shared ? lock.acquireShared(millis) : lock.acquire(millis)) {
                            now(true, shared ? "acquired - shared" : "acquired -");
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
                        lock.release();
                        say("released");
                    } catch (Exception e) {
                        say("unreleased " + e);
                    }
                    break;
                case "downgrade":
                    try {
                        downgrading();
                        lock.downgrade();
                        say("downgraded");
                    } catch (Exception e) {
                        say("failed " + e);
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
                    cycle(lock, Long.parseLong(w[1]));
                    break;
                case "quit":
                    lock.close();
                    System.exit(0);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }
}
