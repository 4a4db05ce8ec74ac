"""Takes part with kazoo's lock until there is a node over.

mixed.py ADDRESS DIR mutex|names

Sessions and processes get killed. mixed_test.go says what whoever is in does, so
that the servers can tell who is in. The nodes' names are those that Curator knows.
"""

import os
import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.recipe.lock import Lock

ADDRESS, DIR, RECIPE = sys.argv[1:4]


class Named(Lock):
    _NODE_NAME = "-lock-"


def beside(what):
    print("BESIDE: " + what, flush=True)
    os._exit(3)


def next_name(client):
    if RECIPE == "mutex":
        return ""
    grants = client.exists(DIR + "/log").numChildren
    return "-%d" % ((grants // 5 + random.randrange(3)) % 500)  # as mixed_worker_test.go


def write(client, name, node):
    t = client.transaction()
    t.check(node, -1)
    t.create(DIR + "/busy/w" + name, ephemeral=True)
    done = t.commit()
    if isinstance(done[0], NoNodeError):
        print("lost: " + node, flush=True)
        return
    if isinstance(done[1], NodeExistsError):
        beside(node + " is in, and so is another")
    there = client.get_children(DIR + "/busy")
    if "w" in there and len(there) > 1:
        beside("%s writes beside %s" % (node, there))
    count = int(client.get(DIR + "/count" + name)[0])
    t = client.transaction()
    t.check(node, -1)
    t.delete(DIR + "/busy/w" + name)
    t.create("%s/log/kazoo-w-%s-" % (DIR, node[-10:]), sequence=True)
    t.set_data(DIR + "/count" + name, b"%d" % (count + 1))
    if isinstance(t.commit()[0], NoNodeError):
        print("lost: " + node, flush=True)


def contend():
    while True:
        client = KazooClient(hosts=ADDRESS, timeout=6)
        try:
            client.start(20)
            while not client.exists(DIR + "/over"):
                name = next_name(client)
                lock = Named(client, DIR + "/lock" + name, extra_lock_patterns=["lock-"])
                if lock.acquire(timeout=20):
                    try:
                        write(client, name, "%s/lock%s/%s" % (DIR, name, lock.node))
                    finally:
                        lock.release()
                time.sleep(random.random() / 100)
            return
        except Exception as e:
            # Its session was killed, or zklock deleted the new root before kazoo's create (NoNodeError).
            print("again: %r" % e, flush=True)
        finally:
            client.stop()
            client.close()


threads = [threading.Thread(target=contend) for _ in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
