import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** A thread with a name. Curator's locks belong to threads, so each contender of a scene is one. */
final class Actor {
    final String name;
    private final ExecutorService thread;

    Actor(String name) {
        this.name = name;
        this.thread = Executors.newSingleThreadExecutor(r -> {
            Thread t = new Thread(r, name);
            t.setDaemon(true);
            return t;
        });
    }

    /** Has the actor do something, and prints how it ended. */
    void does(String what, Callable<?> act) throws Exception {
        ends(what, begins(act));
    }

    /** Has the actor begin something that will take its time. */
    Future<String> begins(Callable<?> act) {
        return thread.submit(() -> Stage.outcome(act));
    }

    /** Waits for the end of what has begun, and prints how it ended. */
    void ends(String what, Future<String> begun) throws Exception {
        Stage.say("  %s %s: %s", name, what, begun.get(20, TimeUnit.SECONDS));
    }
}
