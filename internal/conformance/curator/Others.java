import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Leader latch, cache, and the operations under them. */
final class Others {
    private final Stage stage;

    Others(Stage stage) {
        this.stage = stage;
    }

    /** A latch that notes its ups and downs. */
    private record Candidate(LeaderLatch latch, List<String> notes) {
        static Candidate enter(Stage stage, String name) throws Exception {
            LeaderLatch latch = new LeaderLatch(stage.client(name), "/election", name);
            List<String> notes = Collections.synchronizedList(new ArrayList<>());
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    notes.add("leads");
                }

                @Override
                public void notLeader() {
                    notes.add("leads no more");
                }
            });
            latch.start();
            return new Candidate(latch, notes);
        }
    }

    private void participants(LeaderLatch latch, int n) throws Exception {
        Stage.await(n + " participants", () -> latch.getParticipants().size() == n && latch.getLeader().isLeader());
        List<String> names = new ArrayList<>();
        for (Participant p : latch.getParticipants()) {
            names.add(p.getId() + (p.isLeader() ? " (leads)" : ""));
        }
        Collections.sort(names);
        Stage.say("  participants: %s", names);
    }

    void leaderLatch() throws Exception {
        Candidate a = Candidate.enter(stage, "a");
        Stage.await("a to lead", a.latch::hasLeadership);
        Candidate b = Candidate.enter(stage, "b");
        stage.awaitChildren("/election", 2);
        Candidate c = Candidate.enter(stage, "c");
        stage.awaitChildren("/election", 3);
        participants(b.latch, 3);
        stage.tree("/election");
        a.latch.close(LeaderLatch.CloseMode.NOTIFY_LEADER);
        Stage.await("b to lead", b.latch::hasLeadership);
        participants(c.latch, 2);
        stage.killSession("b");
        Stage.await("c to lead", c.latch::hasLeadership);
        stage.awaitChildren("/election", 2);
        participants(c.latch, 2);
        Stage.await("b to know", () -> !b.latch.hasLeadership());
        c.latch.close();
        Stage.await("b to lead again", b.latch::hasLeadership);
        b.latch.close(LeaderLatch.CloseMode.NOTIFY_LEADER);
        Stage.await("everybody's notes", () -> a.notes.size() == 2 && b.notes.size() == 4 && c.notes.size() == 1);
        Stage.say("  a %s", a.notes);
        Stage.say("  b %s", b.notes);
        Stage.say("  c %s", c.notes);
        stage.awaitChildren("/election", 0);
    }

    /** The events of a cache, and how many the transcript has told. */
    private static final class Told {
        final List<String> events = Collections.synchronizedList(new ArrayList<>());
        private int told;

        Told(CuratorCache cache) {
            cache.listenable().addListener((type, before, after) -> events.add(type + " " + node(before) + " -> " + node(after)));
            cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(() -> events.add("initialised")).build());
        }

        private static String node(ChildData d) {
            return d == null ? "nothing"
                : d.getPath() + " " + Stage.text(d.getData()) + " version=" + d.getStat().getVersion();
        }

        /** Prints the next n events, which come from parallel reads and so in any order. */
        void tell(int n) throws Exception {
            Stage.await(n + " more events after " + events, () -> events.size() >= told + n);
            Thread.sleep(50);
            List<String> news = new ArrayList<>(events.subList(told, events.size()));
            told += news.size();
            Collections.sort(news);
            news.forEach(e -> Stage.say("  - %s", e));
        }
    }

    void cache() throws Exception {
        CuratorFramework client = stage.client("a");
        CuratorFramework writer = stage.client("b");
        writer.create().creatingParentsIfNeeded().forPath("/cache/before", Stage.bytes("old"));
        CuratorCache cache = CuratorCache.build(client, "/cache");
        Told told = new Told(cache);
        cache.start();
        told.tell(3);
        Stage.say("  created while watched");
        writer.create().forPath("/cache/x", Stage.bytes("1"));
        told.tell(1);
        writer.create().creatingParentsIfNeeded().forPath("/cache/x/y/z", Stage.bytes("deep"));
        told.tell(2);
        Stage.say("  changed");
        for (int i = 2; i < 5; i++) {
            writer.setData().forPath("/cache/x", Stage.bytes("" + i));
            told.tell(1);
        }
        Stage.say("  deleted");
        writer.delete().deletingChildrenIfNeeded().forPath("/cache/x");
        told.tell(3);
        Stage.say("  gone with its session");
        stage.client("c").create().withMode(CreateMode.EPHEMERAL).forPath("/cache/ephemeral", Stage.bytes("c's"));
        told.tell(1);
        stage.killSession("c");
        told.tell(1);
        Stage.say("  and after the cache's own session");
        stage.killSession("a");
        writer.create().forPath("/cache/after", Stage.bytes("new"));
        told.tell(1);
        writer.setData().forPath("/cache/before", Stage.bytes("newer"));
        told.tell(1);
        Stage.say("  in all:");
        List<String> all = new ArrayList<>();
        cache.stream().forEach(d -> all.add(Told.node(d)));
        Collections.sort(all);
        all.forEach(d -> Stage.say("  = %s", d));
        cache.close();
    }

    void cacheOfOne() throws Exception {
        CuratorFramework writer = stage.client("b");
        CuratorCache cache = CuratorCache.build(stage.client("a"), "/single", CuratorCache.Options.SINGLE_NODE_CACHE);
        Told told = new Told(cache);
        cache.start();
        told.tell(1);
        writer.create().forPath("/single", Stage.bytes("1"));
        told.tell(1);
        writer.create().forPath("/single/child");
        writer.setData().forPath("/single", Stage.bytes("2"));
        told.tell(1);
        writer.delete().deletingChildrenIfNeeded().forPath("/single");
        told.tell(1);
        cache.close();
    }

    void operations() throws Exception {
        CuratorFramework c = stage.client("a");
        say("container", () -> c.create().creatingParentContainersIfNeeded().withMode(CreateMode.CONTAINER).forPath("/ops/container"));
        say("protected", () -> Stage.plain(c.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/ops/container/n-")));
        say("sequential", () -> c.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/ops/container/n-"));
        say("with a time to live", () -> c.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ops/ttl"));
        say("again", () -> c.create().forPath("/ops/ttl"));
        say("create or set", () -> c.create().orSetData().forPath("/ops/ttl", Stage.bytes("set")));
        say("a stat", () -> {
            Stat stat = new Stat();
            c.create().storingStatIn(stat).forPath("/ops/stat", Stage.bytes("four"));
            return stat.getDataLength() + " bytes, version " + stat.getVersion() + ", " + (stat.getCzxid() == stat.getMzxid());
        });
        say("wrong version", () -> c.setData().withVersion(7).forPath("/ops/stat", Stage.bytes("x")));
        say("delete what has children", () -> c.delete().forPath("/ops"));
        say("child of an ephemeral", () -> {
            c.create().withMode(CreateMode.EPHEMERAL).forPath("/ops/ephemeral");
            return c.create().forPath("/ops/ephemeral/child");
        });
        say("a transaction", () -> c.transaction().forOperations(
            c.transactionOp().create().forPath("/ops/t", Stage.bytes("1")),
            c.transactionOp().setData().forPath("/ops/t", Stage.bytes("2")),
            c.transactionOp().check().withVersion(1).forPath("/ops/t"),
            c.transactionOp().create().withMode(CreateMode.CONTAINER).forPath("/ops/t/c"),
            c.transactionOp().delete().forPath("/ops/stat")).stream()
            .map(r -> r.getType() + " " + r.getForPath() + " " + KeeperException.Code.get(r.getError())).toList());
        say("one that fails", () -> {
            try {
                return c.transaction().forOperations(
                    c.transactionOp().create().forPath("/ops/u"),
                    c.transactionOp().check().withVersion(9).forPath("/ops/t"),
                    c.transactionOp().delete().forPath("/ops/t/c"));
            } catch (KeeperException e) {
                List<String> results = new ArrayList<>();
                e.getResults().forEach(r -> results.add(r instanceof org.apache.zookeeper.OpResult.ErrorResult failed
                    ? KeeperException.Code.get(failed.getErr()).toString() : r.toString()));
                return e.code() + " " + results;
            }
        });
        say("sync", () -> c.sync().forPath("/ops"));
        say("acl", () -> c.getACL().forPath("/ops").get(0).getId().getId());
        say("acl of another version", () -> c.setACL().withVersion(3).withACL(org.apache.zookeeper.ZooDefs.Ids.READ_ACL_UNSAFE).forPath("/ops/t"));
        say("read only", () -> c.setACL().withACL(org.apache.zookeeper.ZooDefs.Ids.READ_ACL_UNSAFE).forPath("/ops/t").getAversion());
        say("write it", () -> c.setData().forPath("/ops/t", Stage.bytes("3")));
        say("no such node", () -> c.getChildren().forPath("/ops/missing"));
        stage.tree("/ops");
    }

    private static void say(String what, java.util.concurrent.Callable<?> act) {
        Stage.say("  %s: %s", what, Stage.outcome(act));
    }
}
