/**
 * Plays scenes with Curator's recipes on a server and prints what is to be seen, so that two servers can be
 * compared by the transcript. Exits with 1 if a scene does not come to its end.
 *
 * <p>usage: Transcript HOST:PORT
 */
public final class Transcript {
    private interface Scene {
        void play() throws Exception;
    }

    private final Stage stage;

    private Transcript(String address) {
        stage = new Stage(address);
    }

    public static void main(String[] args) {
        int status = new Transcript(args[0]).play() ? 0 : 1;
        System.out.flush();
        System.exit(status);
    }

    private boolean play() {
        Locks locks = new Locks(stage);
        Others others = new Others(stage);
        return scene("operations", others::operations)
            && scene("mutex: one client", locks::reentrantMutex)
            && scene("mutex: a queue", locks::contendedMutex)
            && scene("mutex: a waiter gives up", locks::waiterGivesUp)
            && scene("mutex: a waiter loses its session", locks::waiterLosesItsSession)
            && scene("mutex: the holder loses its session", locks::holderLosesItsSession)
            && scene("mutex: revocation", locks::revocation)
            && scene("mutex: a crowd", locks::crowd)
            && scene("several locks at once", locks::manyAtOnce)
            && scene("read/write lock", locks::readWrite)
            && scene("read/write lock: the writer loses its session", locks::readWriteLosesASession)
            && scene("semaphore", locks::semaphore)
            && scene("semaphore as a mutex", locks::semaphoreMutex)
            && scene("leader latch", others::leaderLatch)
            && scene("cache", others::cache)
            && scene("cache of one node", others::cacheOfOne);
    }

    private boolean scene(String name, Scene scene) {
        Stage.say("%s", name);
        long start = System.currentTimeMillis();
        try {
            scene.play();
            System.err.printf("%6d ms: %s%n", System.currentTimeMillis() - start, name);
            return true;
        } catch (Exception e) {
            Stage.say("  DOES NOT COME TO ITS END: %s", e);
            e.printStackTrace();
            return false;
        } finally {
            stage.clear();
        }
    }
}
