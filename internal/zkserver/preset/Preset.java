import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Writes a snapshot for a server to start from, by the server's own classes. It holds a node for each path, with
 * a count of creates: the number that the node's next sequential child gets.
 *
 * <p>Preset dataDir path creates [path creates ...]
 */
class Preset {
    public static void main(String[] args) throws Exception {
        DataTree tree = new DataTree();
        long zxid = 0;
        for (int i = 1; i < args.length; i += 2) {
            tree.createNode(args[i], new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, 0, -1, ++zxid, System.currentTimeMillis());
            tree.setCversionPzxid(args[i], Integer.parseInt(args[i + 1]), zxid);
        }
        tree.lastProcessedZxid = zxid;
        File dataDir = new File(args[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(dataDir, dataDir);
        log.save(tree, new ConcurrentHashMap<Long, Integer>(), true);
        log.close();
    }
}
