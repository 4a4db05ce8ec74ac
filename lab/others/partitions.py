"""A member of kazoo's SetPartitioner: SERVERS NAME PARTITIONS. It prints when it begins and ends to own a partition."""

import os, signal, sys, threading, time

from kazoo.client import KazooClient

servers, name, n = sys.argv[1:]
ending = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ending.set())
client = KazooClient(hosts=servers, timeout=6)
client.start(timeout=30)
members = client.SetPartitioner("/partitions", set=tuple(range(int(n))), identifier=name, time_boundary=1)
mine = []


def say(what):
    for partition in mine:
        os.write(1, b"%s %d %d\n" % (what, partition, time.time_ns()))


while not ending.wait(0.02) and not members.failed:
    if members.release:
        say(b"end")
        mine = []
        members.release_set()
    elif members.acquired and not mine:
        mine = list(members)
        say(b"start")
say(b"end")
members.finish()
client.stop()
