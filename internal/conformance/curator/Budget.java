import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * Does with Curator's mutex, and then with its other recipes, what the request budget has rows for. Whoever runs it counts at the server, between a
 * line "begin NAME" and a line "end NAME". It answers each line with one of its own, and "until" when it is so.
 *
 * <p>usage: Budget HOST:PORT
 */
public final class Budget {
    private final Stage stage;
    private final BufferedReader counter = new BufferedReader(new InputStreamReader(System.in));
    private final Actor a = new Actor("a");
    private final Actor b = new Actor("b");
    private final Actor c = new Actor("c");

    private Budget(String address) {
        stage = new Stage(address);
    }

    public static void main(String[] args) throws Exception {
        Budget budget = new Budget(args[0]);
        budget.free();
        budget.notAcquired();
        budget.handOver();
        budget.oneProcess();
        budget.parents();
        budget.lostConnection();
        new BudgetOfRecipes(budget, budget.stage).run();
        budget.stage.clear();
        System.exit(0);
    }

    void count(String name, Callable<?> act) throws Exception {
        say("begin " + name);
        act.call();
        say("end " + name);
    }

    void say(String line) throws Exception {
        System.out.println(line);
        System.out.flush();
        if (counter.readLine() == null) {
            throw new IllegalStateException("nobody counts");
        }
    }

    private InterProcessMutex mutex(String client, String path) throws Exception {
        return new InterProcessMutex(stage.client(client), path);
    }

    /** Has the actor do it, here and now. */
    static Callable<Void> by(Actor actor, Callable<?> act) {
        return () -> {
            granted(actor.begins(act));
            return null;
        };
    }

    static void granted(Future<String> act) throws Exception {
        String how = act.get(20, TimeUnit.SECONDS);
        if (!how.equals("null") && !how.equals("true") && !how.equals("false")) {
            throw new IllegalStateException(how);
        }
    }

    private void free() throws Exception {
        InterProcessMutex m = mutex("a", "/locks/free");
        by(a, Locks.acquire(m)).call();
        by(a, Locks.release(m)).call();
        count("acquire", by(a, Locks.acquire(m)));
        count("re-entrant pair", () -> {
            by(a, Locks.acquire(m)).call();
            return by(a, Locks.release(m)).call();
        });
        count("release", by(a, Locks.release(m)));
    }

    private void notAcquired() throws Exception {
        InterProcessMutex held = mutex("a", "/locks/held");
        InterProcessMutex m = mutex("b", "/locks/held");
        by(a, Locks.acquire(held)).call();
        by(b, () -> m.acquire(0, TimeUnit.SECONDS)).call();
        count("try that fails", by(b, () -> m.acquire(0, TimeUnit.SECONDS)));
        count("wait that times out", by(b, () -> m.acquire(300, TimeUnit.MILLISECONDS)));
        by(a, Locks.release(held)).call();
    }

    private void handOver() throws Exception {
        InterProcessMutex first = mutex("a", "/locks/queue");
        InterProcessMutex second = mutex("b", "/locks/queue");
        InterProcessMutex third = mutex("c", "/locks/queue");
        by(a, Locks.acquire(first)).call();
        List<Future<String>> waiting = new ArrayList<>();
        count("queue one waiter", () -> waiting.add(b.begins(Locks.acquire(second))));
        count("queue another", () -> waiting.add(c.begins(Locks.acquire(third))));
        count("hand-over to the second in line", () -> {
            by(a, Locks.release(first)).call();
            granted(waiting.get(0));
            return null;
        });
        count("hand-over to one that was further back", () -> {
            by(b, Locks.release(second)).call();
            granted(waiting.get(1));
            return null;
        });
        by(c, Locks.release(third)).call();
    }

    private void oneProcess() throws Exception {
        InterProcessMutex m = mutex("a", "/locks/crowd");
        by(a, Locks.acquire(m)).call();
        List<Actor> actors = new ArrayList<>();
        List<Future<String>> waiting = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            actors.add(new Actor("thread " + i));
            waiting.add(actors.get(i).begins(Locks.acquire(m)));
            stage.awaitChildren("/locks/crowd", i + 2);
        }
        say("until eight threads watch");
        count("hand-over among eight threads", () -> {
            by(a, Locks.release(m)).call();
            granted(waiting.get(0));
            return null;
        });
        for (int i = 0; i < 8; i++) {
            granted(waiting.get(i));
            by(actors.get(i), Locks.release(m)).call();
        }
    }

    private void parents() throws Exception {
        for (int d = 0; d < 4; d++) {
            String root = "/locks/new" + d;
            stage.client("b").create().creatingParentsIfNeeded().forPath(root);
            InterProcessMutex m = mutex("a", root + "/x".repeat(d));
            count("first acquire, " + d + " parents missing", by(a, Locks.acquire(m)));
            by(a, Locks.release(m)).call();
        }
    }

    private void lostConnection() throws Exception {
        InterProcessMutex held = mutex("b", "/locks/lost");
        InterProcessMutex m = mutex("a", "/locks/lost");
        by(b, Locks.acquire(held)).call();
        List<Actor> actors = new ArrayList<>();
        List<Future<String>> waiting = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            actors.add(new Actor("thread " + i));
            waiting.add(actors.get(i).begins(Locks.acquire(m)));
            stage.awaitChildren("/locks/lost", i + 2);
        }
        say("until twenty threads watch");
        // Whoever counts cuts the connection of a.
        count("lost connection with 20 waiters", () -> null);
        by(b, Locks.release(held)).call();
        for (int i = 0; i < 20; i++) {
            granted(waiting.get(i));
            by(actors.get(i), Locks.release(m)).call();
        }
    }
}
