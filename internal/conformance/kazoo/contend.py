"""Contends for a lock with kazoo's recipe.

contend.py ADDRESS LOCK BUSY LOG CONTENDERS ROUNDS NAME

Whoever is in makes the node BUSY, which fails if somebody else is in, and leaves
its number in the queue, and who it is, in LOG.

NAME stands between the id and the number in a node's name. kazoo's own is
__lock__, which Curator does not know. Other names than its own it has to be
told, too: every lock- is one for this.
"""

import random
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

ADDRESS, LOCK, BUSY, LOG = sys.argv[1:5]
CONTENDERS, ROUNDS = int(sys.argv[5]), int(sys.argv[6])
failed = []


class Named(Lock):
    _NODE_NAME = sys.argv[7]


def contend():
    client = KazooClient(hosts=ADDRESS, timeout=30)
    client.start()
    try:
        lock = Named(client, LOCK, extra_lock_patterns=["lock-"])
        for _ in range(ROUNDS):
            with lock:
                client.create(BUSY, ephemeral=True)
                client.create("%s/%s-kazoo-" % (LOG, lock.node[-10:]), sequence=True)
                client.delete(BUSY)
            time.sleep(random.random() / 100)  # or all stay in the order in which they began
    except Exception:
        traceback.print_exc()
        failed.append(1)
    finally:
        client.stop()
        client.close()


threads = [threading.Thread(target=contend) for _ in range(CONTENDERS)]
for t in threads:
    t.start()
for t in threads:
    t.join()
sys.exit(len(failed))
