import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Comparator;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.zookeeper.CreateMode;

/**
 * Stands for election with Curator's recipes: java Elect ADDRESS PATH BUSY LOG CONTENDERS ROUNDS selector|latch.
 *
 * <p>Whoever leads makes the node BUSY, which fails if somebody else leads, looks who stands, and leaves its number in the queue,
 * and who it is, in LOG.
 */
public final class Elect {
    private static final String ID = "curator";

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[5]);
        Together.run(args[0], Integer.parseInt(args[4]), client -> {
            for (int round = 0; round < rounds; round++) {
                if (args[6].equals("latch")) {
                    latch(client, args[1], args[2], args[3]);
                } else {
                    selector(client, args[1], args[2], args[3]);
                }
                Thread.sleep(ThreadLocalRandom.current().nextInt(10));
            }
        });
    }

    private static void latch(CuratorFramework client, String path, String busy, String log) throws Exception {
        try (LeaderLatch latch = new LeaderLatch(client, path, ID)) {
            latch.start();
            latch.await();
            lead(client, path, busy, log, latch.getLeader(), () -> latch.getParticipants());
        }
    }

    private static void selector(CuratorFramework client, String path, String busy, String log) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        Exception[] failed = new Exception[1];
        LeaderSelector[] self = new LeaderSelector[1];
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) {
                try {
                    lead(client, path, busy, log, self[0].getLeader(), () -> self[0].getParticipants());
                } catch (Exception e) {
                    failed[0] = e; // Curator drops what is thrown here
                }
                done.countDown();
            }
        });
        self[0] = selector;
        selector.setId(ID);
        selector.start();
        done.await();
        while (selector.hasLeadership()) { // it gives the leadership up after takeLeadership
            Thread.sleep(1);
        }
        selector.close();
        if (failed[0] != null) {
            throw failed[0];
        }
    }

    private static void lead(CuratorFramework client, String path, String busy, String log, Participant leader,
            Callable<Iterable<Participant>> participants) throws Exception {
        client.create().withMode(CreateMode.EPHEMERAL).forPath(busy);
        if (!leader.getId().equals(ID)) {
            throw new IllegalStateException("the leader is called " + leader);
        }
        for (Participant p : participants.call()) {
            if (!p.getId().equals(ID) && !p.getId().equals("zklock") && !p.getId().isEmpty()) { // a node that goes meanwhile has no name
                throw new IllegalStateException("a candidate is called " + p);
            }
        }
        String front = Collections.min(client.getChildren().forPath(path), Comparator.comparing((String name) -> name.substring(name.length() - 10)));
        String data = new String(client.getData().forPath(path + "/" + front), StandardCharsets.UTF_8);
        if (!data.equals(ID)) {
            throw new IllegalStateException("in front is " + front + " of " + data);
        }
        client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(log + "/" + front.substring(front.length() - 10) + "-curator-");
        client.delete().forPath(busy);
    }
}
