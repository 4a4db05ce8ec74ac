import java.util.concurrent.TimeUnit;

import org.jgroups.JChannel;
import org.jgroups.MergeView;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;
import org.jgroups.blocks.locking.LockService;

/**
 * JGroups' CENTRAL_LOCK. The members of a group lock among themselves: the oldest, its coordinator, keeps the locks, and one
 * other has a copy. All that passes between members passes through a router, so that one of them can be cut off.
 */
public final class JGroups extends Client {
    public static void main(String[] args) throws Exception {
        new JGroups().run(args);
    }

    // Protocols and their order are those of the TUNNEL stack that JGroups brings along. A member that is silent for the
    // lock's time is taken for gone; parts that find each other again merge within some two seconds.
    private String stack() {
        int ttl = Integer.parseInt(flags.get("-ttl"));
        String[] router = flags.get("-servers").split(":");
        return "TUNNEL(gossip_router_hosts=" + router[0] + "[" + router[1] + "];reconnect_interval=500;enable_diagnostics=false)"
                + ":PING(timeout=1000)"
                + ":MERGE2(min_interval=500;max_interval=1500)"
                + ":FD_ALL(interval=" + ttl / 3 + ";timeout=" + ttl + ")"
                + ":VERIFY_SUSPECT(timeout=300)"
                + ":pbcast.NAKACK(use_mcast_xmit=false;gc_lag=0;retransmit_timeout=300,600,1200,2400,4800;discard_delivered_msgs=true)"
                + ":UNICAST(timeout=300,600,1200,2400,3600)"
                + ":pbcast.STABLE(stability_delay=1000;desired_avg_gossip=5000;max_bytes=4m)"
                + ":pbcast.GMS(print_local_addr=false;join_timeout=3000;view_bundling=true)"
                + ":CENTRAL_LOCK(num_backups=1)";
    }

    @Override
    Lock open() throws Exception {
        JChannel channel = new JChannel(stack());
        LockService service = new LockService(channel);
        // The lock tells nobody. The group's view does: where two parts have met, both may have granted the lock.
        channel.setReceiver(new ReceiverAdapter() {
            @Override
            public void viewAccepted(View view) {
                if (view instanceof MergeView) {
                    lost("merge");
                }
            }
        });
        channel.connect(flags.get("-lock"));
        java.util.concurrent.locks.Lock lock = service.getLock("lock");
        return new Lock() {
            @Override
            public boolean acquire(long millis) throws Exception {
                return lock.tryLock(millis, TimeUnit.MILLISECONDS);
            }

            @Override
            public void release() {
                lock.unlock();
            }

            @Override
            public void close() {
                channel.close();
            }
        };
    }
}
