import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;

/**
 * Puts Curator's recipes to workloads: java Bench ADDRESS.
 *
 * <p>Each line on standard input is one: PATH SESSIONS THREADS LOCKS HOLD_MICROS DRAIN BURST MILLIS READS PERMITS
 * ELECTION SEVERAL. The answer is a line: OPERATIONS TOOK_MICROS MEDIAN_MICROS OVERLAPS CPU_MICROS HELD_MICROS.
 */
public final class Bench {
    private static final class Inside {
        final AtomicInteger in = new AtomicInteger();
    }

    private static final AtomicInteger overlaps = new AtomicInteger();
    private static final AtomicLong held = new AtomicLong();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] w = line.split(" ");
            System.out.println(run(args[0], w[0], Integer.parseInt(w[1]), Integer.parseInt(w[2]), Integer.parseInt(w[3]),
                Long.parseLong(w[4]), Integer.parseInt(w[5]), Integer.parseInt(w[6]), Long.parseLong(w[7]),
                Integer.parseInt(w[8]), Integer.parseInt(w[9]), w[10].equals("1"), Integer.parseInt(w[11])));
            System.out.flush();
        }
    }

    /** What is done under a lock. */
    private interface Body {
        void run() throws Exception;
    }

    private interface Lock {
        void hold(Body body) throws Exception;
    }

    private static Lock of(InterProcessLock lock) {
        return body -> {
            lock.acquire();
            body.run();
            lock.release();
        };
    }

    private static Lock of(InterProcessSemaphoreV2 semaphore) {
        return body -> {
            Lease lease = semaphore.acquire();
            body.run();
            semaphore.returnLease(lease);
        };
    }

    private static InterProcessLock together(CuratorFramework client, String name, int several) {
        List<String> paths = new ArrayList<>();
        for (int i = 0; i < several; i++) {
            paths.add(name + "-" + i);
        }
        return new InterProcessMultiLock(client, paths);
    }

    /** A candidate queues again by itself whenever it has led, from the first hold on, until it is closed: left open, it would try
     *  without a pause to queue with a client that is closed. */
    private static Lock candidate(CuratorFramework client, String path, Body body, List<LeaderSelector> open) {
        Semaphore led = new Semaphore(0);
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) throws Exception {
                body.run();
                led.release();
            }
        });
        selector.autoRequeue();
        open.add(selector);
        AtomicInteger started = new AtomicInteger();
        return unused -> {
            if (started.getAndIncrement() == 0) {
                selector.start();
            }
            led.acquire();
        };
    }

    private static void visit(Inside inside, int takes, int room, long holdMicros) throws InterruptedException {
        if (inside.in.addAndGet(takes) > room) {
            overlaps.incrementAndGet();
        }
        if (holdMicros > 0) {
            long began = System.nanoTime();
            Thread.sleep(holdMicros / 1000, (int) (holdMicros % 1000) * 1000);
            held.addAndGet(System.nanoTime() - began);
        }
        inside.in.addAndGet(-takes);
    }

    private static long cpuMicros() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1000;
    }

    private static String run(String address, String path, int sessions, int threads, int locks, long hold, int drain, int burst, long millis,
        int reads, int permits, boolean election, int several) throws Exception {
        int room = reads > 0 ? 1 << 20 : Math.max(1, permits);
        overlaps.set(0);
        held.set(0);
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < sessions; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryNTimes(3, 100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        List<Inside> inside = new ArrayList<>();
        for (int k = 0; k < Math.max(1, locks); k++) {
            inside.add(new Inside());
        }
        List<Long> times = Collections.synchronizedList(new ArrayList<>());
        List<Throwable> failed = Collections.synchronizedList(new ArrayList<>());
        List<Thread> all = new ArrayList<>();
        List<LeaderSelector> selectors = Collections.synchronizedList(new ArrayList<>());
        InterProcessMutex first = new InterProcessMutex(clients.get(0), path + "-0");
        if (drain > 0) {
            first.acquire();
            for (int i = 0; i < drain; i++) {
                InterProcessMutex mutex = new InterProcessMutex(clients.get(i / burst % sessions), path + "-0");
                Thread waiter = new Thread(null, () -> {
                    try {
                        mutex.acquire();
                        visit(inside.get(0), 1, 1, 0);
                        mutex.release();
                    } catch (Throwable t) {
                        failed.add(t);
                    }
                }, "waiter", 256 << 10);
                all.add(waiter);
                waiter.start();
                while ((i + 1) % burst == 0 && clients.get(0).checkExists().forPath(path + "-0").getNumChildren() < i + 2) {
                    Thread.sleep(1);
                }
            }
            Thread.sleep(1000);
        }
        long cpu = cpuMicros();
        long start = System.nanoTime();
        if (drain > 0) {
            first.release();
        } else {
            long end = start + millis * 1_000_000;
            for (int c = 0; c < sessions; c++) {
                CuratorFramework client = clients.get(c);
                for (int n = 0; n < threads; n++) {
                    int owner = c * threads + n;
                    int from = n * locks / threads;
                    Thread thread = new Thread(() -> {
                        try {
                            List<Lock> mine = new ArrayList<>();
                            List<Lock> readers = new ArrayList<>();
                            for (int k = 0; k < Math.max(1, locks); k++) {
                                String name = path + "-" + k;
                                Inside in = inside.get(k);
                                InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, name);
                                readers.add(of(both.readLock()));
                                mine.add(reads > 0 ? of(both.writeLock())
                                    : permits > 0 ? of(new InterProcessSemaphoreV2(client, name, permits))
                                    : several > 0 ? of(together(client, name, several))
                                    : election ? candidate(client, name, () -> visit(in, 1, 1, hold), selectors)
                                    : of(new InterProcessMutex(client, name)));
                            }
                            int k = from;
                            int i = 0;
                            do { // once at the least, however slow the machine is
                                long began = System.nanoTime();
                                Inside in = inside.get(k);
                                if ((61 * i++ + 37 * owner) % 100 < reads) {
                                    readers.get(k).hold(() -> visit(in, 1, room, hold));
                                } else {
                                    mine.get(k).hold(() -> visit(in, reads > 0 ? room : 1, room, hold));
                                }
                                times.add((System.nanoTime() - began) / 1000 - hold);
                                k = (k + 1) % locks;
                            } while (System.nanoTime() < end);
                        } catch (Throwable t) {
                            failed.add(t);
                        }
                    });
                    all.add(thread);
                    thread.start();
                }
            }
        }
        for (Thread thread : all) {
            thread.join();
        }
        long took = (System.nanoTime() - start) / 1000;
        cpu = cpuMicros() - cpu;
        for (LeaderSelector selector : selectors) {
            try {
                selector.close();
            } catch (IllegalStateException e) { // its thread never came to start it
            }
        }
        for (CuratorFramework client : clients) {
            client.close();
        }
        if (!failed.isEmpty()) {
            failed.get(0).printStackTrace();
            System.exit(1);
        }
        Collections.sort(times);
        int ops = drain > 0 ? drain : times.size();
        long median = drain > 0 ? took / drain : times.get(times.size() / 2);
        return ops + " " + took + " " + median + " " + overlaps.get() + " " + cpu + " " + held.get() / 1000;
    }
}
