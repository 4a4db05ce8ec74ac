import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;

/** Mutex, read/write lock and semaphore. */
final class Locks {
    private final Stage stage;
    private final Actor a = new Actor("a");
    private final Actor b = new Actor("b");
    private final Actor c = new Actor("c");

    Locks(Stage stage) {
        this.stage = stage;
    }

    static Callable<Void> acquire(InterProcessMutex m) {
        return () -> {
            m.acquire();
            return null;
        };
    }

    static Callable<Void> release(InterProcessMutex m) {
        return () -> {
            m.release();
            return null;
        };
    }

    void reentrantMutex() throws Exception {
        InterProcessMutex m = new InterProcessMutex(stage.client("a"), "/locks/one");
        a.does("releases what it does not hold", release(m));
        a.does("acquires", acquire(m));
        a.does("acquires again", acquire(m));
        stage.tree("/locks");
        a.does("releases", release(m));
        a.does("owns it still", m::isOwnedByCurrentThread);
        a.does("releases again", release(m));
        a.does("owns it still", m::isOwnedByCurrentThread);
        stage.tree("/locks");
    }

    void contendedMutex() throws Exception {
        InterProcessMutex ma = new InterProcessMutex(stage.client("a"), "/locks/queue");
        InterProcessMutex mb = new InterProcessMutex(stage.client("b"), "/locks/queue");
        InterProcessMutex mc = new InterProcessMutex(stage.client("c"), "/locks/queue");
        a.does("acquires", acquire(ma));
        b.does("waits 300 ms", () -> mb.acquire(300, TimeUnit.MILLISECONDS));
        b.does("waits 0 ms", () -> mb.acquire(0, TimeUnit.MILLISECONDS));
        stage.tree("/locks/queue");
        Future<String> bGets = b.begins(acquire(mb));
        stage.awaitChildren("/locks/queue", 2);
        Future<String> cGets = c.begins(acquire(mc));
        stage.awaitChildren("/locks/queue", 3);
        stage.tree("/locks/queue");
        Stage.say("  participants: %d", ma.getParticipantNodes().size());
        a.does("releases", release(ma));
        b.ends("gets it", bGets);
        Stage.say("  c has it: %s", cGets.isDone());
        stage.tree("/locks/queue");
        b.does("releases", release(mb));
        c.ends("gets it", cGets);
        c.does("releases", release(mc));
        stage.tree("/locks/queue");
    }

    void waiterGivesUp() throws Exception {
        InterProcessMutex ma = new InterProcessMutex(stage.client("a"), "/locks/impatient");
        InterProcessMutex mb = new InterProcessMutex(stage.client("b"), "/locks/impatient");
        InterProcessMutex mc = new InterProcessMutex(stage.client("c"), "/locks/impatient");
        a.does("acquires", acquire(ma));
        Future<String> bGets = b.begins(() -> mb.acquire(1500, TimeUnit.MILLISECONDS));
        stage.awaitChildren("/locks/impatient", 2);
        Future<String> cGets = c.begins(acquire(mc));
        stage.awaitChildren("/locks/impatient", 3);
        b.ends("waits 1500 ms", bGets);
        Stage.say("  c has it: %s", cGets.isDone());
        stage.tree("/locks/impatient");
        a.does("releases", release(ma));
        c.ends("gets it", cGets);
        c.does("releases", release(mc));
    }

    void waiterLosesItsSession() throws Exception {
        InterProcessMutex ma = new InterProcessMutex(stage.client("a"), "/locks/lost");
        InterProcessMutex mb = new InterProcessMutex(stage.client("b"), "/locks/lost");
        InterProcessMutex mc = new InterProcessMutex(stage.client("c"), "/locks/lost");
        a.does("acquires", acquire(ma));
        Future<String> bGets = b.begins(acquire(mb));
        stage.awaitChildren("/locks/lost", 2);
        Future<String> cGets = c.begins(acquire(mc));
        stage.awaitChildren("/locks/lost", 3);
        stage.killSession("b");
        stage.awaitChildren("/locks/lost", 3);
        stage.tree("/locks/lost");
        a.does("releases", release(ma));
        c.ends("gets it", cGets);
        Stage.say("  b has it: %s", bGets.isDone());
        c.does("releases", release(mc));
        b.ends("gets it", bGets);
        b.does("releases", release(mb));
        stage.tree("/locks/lost");
    }

    void holderLosesItsSession() throws Exception {
        InterProcessMutex ma = new InterProcessMutex(stage.client("a"), "/locks/held");
        InterProcessMutex mb = new InterProcessMutex(stage.client("b"), "/locks/held");
        a.does("acquires", acquire(ma));
        Future<String> bGets = b.begins(acquire(mb));
        stage.awaitChildren("/locks/held", 2);
        stage.killSession("a");
        b.ends("gets it", bGets);
        a.does("believes it owns it", ma::isOwnedByCurrentThread);
        stage.tree("/locks/held");
        a.does("releases", release(ma));
        b.does("releases", release(mb));
        stage.tree("/locks/held");
    }

    void revocation() throws Exception {
        CuratorFramework client = stage.client("a");
        InterProcessMutex ma = new InterProcessMutex(client, "/locks/revocable");
        AtomicInteger asked = new AtomicInteger();
        ma.makeRevocable(m -> asked.incrementAndGet());
        a.does("acquires", acquire(ma));
        for (String node : ma.getParticipantNodes()) {
            Revoker.attemptRevoke(stage.client("b"), node);
        }
        Stage.await("the wish to have it back", () -> asked.get() == 1);
        stage.tree("/locks/revocable");
        a.does("releases", release(ma));
        Stage.say("  asked %d time", asked.get());
    }

    void crowd() throws Exception {
        int contenders = 5;
        int rounds = 8;
        CuratorFramework onlooker = stage.client("onlooker");
        onlooker.create().creatingParentsIfNeeded().forPath("/crowd/counter", Stage.bytes("0"));
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Actor> actors = new ArrayList<>();
        List<Future<String>> ends = new ArrayList<>();
        for (int i = 0; i < contenders; i++) {
            Actor actor = new Actor("contender " + i);
            CuratorFramework client = stage.client(actor.name);
            InterProcessMutex m = new InterProcessMutex(client, "/crowd/lock");
            actors.add(actor);
            ends.add(actor.begins(() -> {
                for (int round = 0; round < rounds; round++) {
                    m.acquire();
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    int n = Integer.parseInt(new String(client.getData().forPath("/crowd/counter")));
                    client.setData().forPath("/crowd/counter", Stage.bytes("" + (n + 1)));
                    inside.decrementAndGet();
                    m.release();
                }
                return rounds + " rounds";
            }));
        }
        for (int i = 0; i < contenders; i++) {
            actors.get(i).ends("ends", ends.get(i));
        }
        Stage.say("  counted to %s, at most %d inside", new String(onlooker.getData().forPath("/crowd/counter")), most.get());
        stage.tree("/crowd/lock");
    }

    void manyAtOnce() throws Exception {
        List<String> paths = List.of("/multi/x", "/multi/y");
        InterProcessMultiLock both = new InterProcessMultiLock(stage.client("a"), paths);
        InterProcessMutex y = new InterProcessMutex(stage.client("b"), "/multi/y");
        b.does("acquires y", acquire(y));
        a.does("waits 300 ms for x and y", () -> both.acquire(300, TimeUnit.MILLISECONDS));
        stage.tree("/multi");
        b.does("releases y", release(y));
        a.does("waits 5 s for x and y", () -> both.acquire(5, TimeUnit.SECONDS));
        stage.tree("/multi");
        a.does("releases both", () -> {
            both.release();
            return null;
        });
        stage.tree("/multi");
    }

    void readWrite() throws Exception {
        InterProcessReadWriteLock la = new InterProcessReadWriteLock(stage.client("a"), "/rw/lock", Stage.bytes("a's"));
        InterProcessReadWriteLock lb = new InterProcessReadWriteLock(stage.client("b"), "/rw/lock", Stage.bytes("b's"));
        InterProcessReadWriteLock lc = new InterProcessReadWriteLock(stage.client("c"), "/rw/lock", Stage.bytes("c's"));
        a.does("reads", acquire(la.readLock()));
        b.does("reads", acquire(lb.readLock()));
        c.does("waits 300 ms to write", () -> lc.writeLock().acquire(300, TimeUnit.MILLISECONDS));
        stage.tree("/rw/lock");
        Future<String> cWrites = c.begins(acquire(lc.writeLock()));
        stage.awaitChildren("/rw/lock", 3);
        Actor d = new Actor("d");
        InterProcessReadWriteLock ld = new InterProcessReadWriteLock(stage.client("d"), "/rw/lock");
        Future<String> dReads = d.begins(acquire(ld.readLock()));
        stage.awaitChildren("/rw/lock", 4);
        a.does("ends reading", release(la.readLock()));
        Stage.say("  c writes: %s, d reads: %s", cWrites.isDone(), dReads.isDone());
        b.does("ends reading", release(lb.readLock()));
        c.ends("writes", cWrites);
        Stage.say("  d reads: %s", dReads.isDone());
        c.does("reads as well", acquire(lc.readLock()));
        stage.tree("/rw/lock");
        c.does("ends writing", release(lc.writeLock()));
        d.ends("reads", dReads);
        c.does("ends reading", release(lc.readLock()));
        d.does("waits 300 ms to write while it reads", () -> ld.writeLock().acquire(300, TimeUnit.MILLISECONDS));
        d.does("ends reading", release(ld.readLock()));
        stage.tree("/rw/lock");
    }

    void readWriteLosesASession() throws Exception {
        InterProcessReadWriteLock la = new InterProcessReadWriteLock(stage.client("a"), "/rw/lost");
        InterProcessReadWriteLock lb = new InterProcessReadWriteLock(stage.client("b"), "/rw/lost");
        InterProcessReadWriteLock lc = new InterProcessReadWriteLock(stage.client("c"), "/rw/lost");
        a.does("writes", acquire(la.writeLock()));
        Future<String> bReads = b.begins(acquire(lb.readLock()));
        stage.awaitChildren("/rw/lost", 2);
        Future<String> cReads = c.begins(acquire(lc.readLock()));
        stage.awaitChildren("/rw/lost", 3);
        stage.killSession("a");
        b.ends("reads", bReads);
        c.ends("reads", cReads);
        stage.tree("/rw/lost");
        b.does("ends reading", release(lb.readLock()));
        c.does("ends reading", release(lc.readLock()));
    }

    void semaphore() throws Exception {
        InterProcessSemaphoreV2 sa = new InterProcessSemaphoreV2(stage.client("a"), "/semaphore/three", 3);
        InterProcessSemaphoreV2 sb = new InterProcessSemaphoreV2(stage.client("b"), "/semaphore/three", 3);
        sa.setNodeData(Stage.bytes("a's"));
        List<Lease> held = new ArrayList<>();
        a.does("takes two", () -> held.addAll(sa.acquire(2)));
        b.does("waits 300 ms for two", () -> sb.acquire(2, 300, TimeUnit.MILLISECONDS));
        b.does("takes one", () -> held.add(sb.acquire()));
        stage.tree("/semaphore/three");
        Future<String> bGets = b.begins(() -> held.add(sb.acquire()));
        stage.awaitChildren("/semaphore/three/leases", 4);
        a.does("data of the first", () -> Stage.text(held.get(0).getData()));
        a.does("returns one", () -> {
            sa.returnLease(held.remove(0));
            return null;
        });
        b.ends("takes another", bGets);
        stage.tree("/semaphore/three");
        stage.killSession("b");
        stage.awaitChildren("/semaphore/three/leases", 1);
        a.does("takes two", () -> sa.acquire(2, 5, TimeUnit.SECONDS).size());
        stage.tree("/semaphore/three");
    }

    void semaphoreMutex() throws Exception {
        InterProcessSemaphoreMutex ma = new InterProcessSemaphoreMutex(stage.client("a"), "/semaphore/mutex");
        InterProcessSemaphoreMutex mb = new InterProcessSemaphoreMutex(stage.client("b"), "/semaphore/mutex");
        a.does("acquires", () -> ma.acquire(5, TimeUnit.SECONDS));
        b.does("waits 300 ms", () -> mb.acquire(300, TimeUnit.MILLISECONDS));
        stage.tree("/semaphore/mutex");
        c.does("releases it for a, which a thread may", () -> {
            ma.release();
            return null;
        });
        b.does("waits 5 s", () -> mb.acquire(5, TimeUnit.SECONDS));
        stage.tree("/semaphore/mutex");
    }
}
