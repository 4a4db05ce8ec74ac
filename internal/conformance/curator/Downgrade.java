import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

/**
 * A writer takes the read lock, too, and gives the write lock back while another writer waits: java Downgrade ADDRESS. It says whether the
 * other is in while the first still reads. Nobody takes part but Curator.
 */
public final class Downgrade {
    public static void main(String[] args) throws Exception {
        Stage stage = new Stage(args[0]);
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(stage.client("a"), "/downgrade");
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(stage.client("b"), "/downgrade");
        first.writeLock().acquire();
        Future<String> waits = new Actor("b").begins(() -> second.writeLock().acquire(8, TimeUnit.SECONDS));
        stage.awaitChildren("/downgrade", 2);
        first.readLock().acquire();
        first.writeLock().release();
        System.out.println("beside " + waits.get(20, TimeUnit.SECONDS));
        System.exit(0);
    }
}
