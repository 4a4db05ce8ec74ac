import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/**
 * Puts Curator's InterProcessMutex to workloads: java Bench ADDRESS.
 *
 * <p>Each line on standard input is one: PATH SESSIONS THREADS LOCKS HOLD_MICROS DRAIN BURST MILLIS. The answer is a line:
 * OPERATIONS TOOK_MICROS MEDIAN_MICROS OVERLAPS CPU_MICROS HELD_MICROS.
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
                Long.parseLong(w[4]), Integer.parseInt(w[5]), Integer.parseInt(w[6]), Long.parseLong(w[7])));
            System.out.flush();
        }
    }

    private static void visit(Inside inside, long holdMicros) throws InterruptedException {
        if (inside.in.incrementAndGet() != 1) {
            overlaps.incrementAndGet();
        }
        if (holdMicros > 0) {
            long began = System.nanoTime();
            Thread.sleep(holdMicros / 1000, (int) (holdMicros % 1000) * 1000);
            held.addAndGet(System.nanoTime() - began);
        }
        inside.in.decrementAndGet();
    }

    private static long cpuMicros() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1000;
    }

    private static String run(String address, String path, int sessions, int threads, int locks, long hold, int drain, int burst, long millis) throws Exception {
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
        InterProcessMutex first = new InterProcessMutex(clients.get(0), path + "-0");
        if (drain > 0) {
            first.acquire();
            for (int i = 0; i < drain; i++) {
                InterProcessMutex mutex = new InterProcessMutex(clients.get(i / burst % sessions), path + "-0");
                Thread waiter = new Thread(null, () -> {
                    try {
                        mutex.acquire();
                        visit(inside.get(0), 0);
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
            for (CuratorFramework client : clients) {
                for (int n = 0; n < threads; n++) {
                    int from = n * locks / threads;
                    Thread thread = new Thread(() -> {
                        try {
                            List<InterProcessMutex> mine = new ArrayList<>();
                            for (int k = 0; k < Math.max(1, locks); k++) {
                                mine.add(new InterProcessMutex(client, path + "-" + k));
                            }
                            int k = from;
                            do { // once at the least, however slow the machine is
                                long began = System.nanoTime();
                                mine.get(k).acquire();
                                visit(inside.get(k), hold);
                                mine.get(k).release();
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
