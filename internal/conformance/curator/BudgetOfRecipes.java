import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** The part of Budget that is about other recipes than the mutex. */
final class BudgetOfRecipes {
    private final Budget budget;
    private final Stage stage;
    private final Actor a = new Actor("a");
    private final Actor b = new Actor("b");

    BudgetOfRecipes(Budget budget, Stage stage) {
        this.budget = budget;
        this.stage = stage;
    }

    void run() throws Exception {
        readWrite();
        semaphore();
        multi();
        election();
        for (int readers : new int[] {1, 10, 100}) {
            behindAWriter(readers);
        }
    }

    private static Callable<?> acquire(InterProcessLock l) {
        return () -> {
            l.acquire();
            return null;
        };
    }

    private static Callable<?> release(InterProcessLock l) {
        return () -> {
            l.release();
            return null;
        };
    }

    private void readWrite() throws Exception {
        InterProcessReadWriteLock l = new InterProcessReadWriteLock(stage.client("a"), "/locks/rw");
        Budget.by(a, acquire(l.readLock())).call();
        Budget.by(a, release(l.readLock())).call();
        budget.count("read lock", Budget.by(a, acquire(l.readLock())));
        budget.count("read lock: release", Budget.by(a, release(l.readLock())));
        budget.count("write lock", Budget.by(a, acquire(l.writeLock())));
        budget.count("downgrade", Budget.by(a, acquire(l.readLock())));
        budget.count("write lock: release", Budget.by(a, release(l.writeLock())));
        Budget.by(a, release(l.readLock())).call();
    }

    private void semaphore() throws Exception {
        InterProcessSemaphoreV2 mine = new InterProcessSemaphoreV2(stage.client("a"), "/locks/sem", 1);
        InterProcessSemaphoreV2 theirs = new InterProcessSemaphoreV2(stage.client("b"), "/locks/sem", 1);
        Lease[] lease = new Lease[2];
        mine.returnLease(mine.acquire());
        budget.count("permit", Budget.by(a, () -> {
            lease[0] = mine.acquire();
            return null;
        }));
        List<Future<String>> waits = new ArrayList<>();
        budget.count("queue for a permit", () -> waits.add(b.begins(() -> {
            lease[1] = theirs.acquire();
            return null;
        })));
        budget.count("hand-over of a permit", () -> {
            mine.returnLease(lease[0]);
            Budget.granted(waits.get(0));
            return null;
        });
        budget.count("permit: release", Budget.by(b, () -> {
            theirs.returnLease(lease[1]);
            return null;
        }));
    }

    private void multi() throws Exception {
        InterProcessMultiLock l = new InterProcessMultiLock(stage.client("a"), List.of("/locks/m1", "/locks/m2", "/locks/m3"));
        Budget.by(a, acquire(l)).call();
        Budget.by(a, release(l)).call();
        budget.count("three locks together", Budget.by(a, acquire(l)));
        budget.count("three locks together: release", Budget.by(a, release(l)));
    }

    /** A candidate that leads until it is told to stop. */
    private record Candidate(LeaderSelector selector, CountDownLatch leads, CountDownLatch stop) {
        static Candidate stands(CuratorFramework client) {
            CountDownLatch leads = new CountDownLatch(1);
            CountDownLatch stop = new CountDownLatch(1);
            LeaderSelector selector = new LeaderSelector(client, "/locks/election", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework c) throws Exception {
                    leads.countDown();
                    stop.await();
                }
            });
            selector.start();
            return new Candidate(selector, leads, stop);
        }
    }

    private void election() throws Exception {
        Candidate first = Candidate.stands(stage.client("a"));
        first.leads.await();
        Candidate second = Candidate.stands(stage.client("b"));
        budget.say("until the candidate watches");
        budget.count("election hand-over", () -> {
            first.stop.countDown();
            return second.leads.await(20, TimeUnit.SECONDS);
        });
        second.stop.countDown();
        first.selector.close();
        second.selector.close();
    }

    private void behindAWriter(int readers) throws Exception {
        String path = "/locks/readers" + readers;
        InterProcessReadWriteLock l = new InterProcessReadWriteLock(stage.client("a"), path);
        Budget.by(a, acquire(l.writeLock())).call();
        List<Actor> actors = new ArrayList<>();
        List<InterProcessLock> locks = new ArrayList<>();
        List<Future<String>> waiting = new ArrayList<>();
        for (int i = 0; i < readers; i++) {
            actors.add(new Actor("reader " + i));
            locks.add(new InterProcessReadWriteLock(stage.client("reader " + i), path).readLock());
            waiting.add(actors.get(i).begins(acquire(locks.get(i))));
        }
        budget.say("until " + readers + " readers watch");
        budget.count(readers + " readers behind a writer: its release", () -> {
            Budget.by(a, release(l.writeLock())).call();
            for (Future<String> w : waiting) {
                Budget.granted(w);
            }
            return null;
        });
        for (int i = 0; i < readers; i++) {
            Budget.by(actors.get(i), release(locks.get(i))).call();
        }
    }
}
