"""The lab's client with kazoo's Lock, WriteLock and ReadLock, and Semaphore. The lines it takes and gives are those of client.go."""

import os
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
guard = threading.RLock()
believes = False


def say(text):
    with guard:
        os.write(1, b"%d %s\n" % (time.time_ns() // 1000, text.replace("\n", " ").encode()))


def connect():
    client = KazooClient(hosts=flags["-servers"], timeout=int(flags["-ttl"]) / 1e3)
    client.start(timeout=30)
    return client


def changed(state):
    """kazoo's documentation: at SUSPENDED a holder cannot be certain any more that it holds."""
    global believes
    with guard:
        if believes and state in (KazooState.SUSPENDED, KazooState.LOST):
            believes = False
            say("lost " + state)


def now(held, text):
    global believes
    with guard:
        believes = held
        say(text)


def crowd(n, gap, hold):
    locks = [Lock(connect(), "/" + flags["-lock"]) for _ in range(n)]
    threading.stack_size(256 << 10)

    def wait(i):
        try:
            locks[i].acquire()
            say("grant %d -" % i)
            time.sleep(hold / 1e3)
            say("left %d" % i)
            locks[i].release()
        except Exception as e:
            say("failed %r" % e)

    everybody = [threading.Thread(target=wait, args=(i,)) for i in range(n)]
    for thread in everybody:
        thread.start()
        time.sleep(gap / 1e3)
    say("waiting")
    for thread in everybody:
        thread.join()
    say("done")


def cycle(lock, millis):
    count, end = 0, time.monotonic() + millis / 1e3
    while time.monotonic() < end:
        with lock:
            count += 1
    say("cycled %d" % count)


client = connect()
client.add_listener(changed)
path = "/" + flags["-lock"]
if flags["-system"].endswith("-readers"):
    lock, reader = WriteLock(client, path), ReadLock(client, path)
elif flags["-system"].endswith("-permits"):
    lock = Semaphore(client, path, max_leases=2)
else:
    lock = Lock(client, path)
held = lock
say("ready")
for line in iter(sys.stdin.readline, ""):
    word, *numbers = line.split()
    shared = "shared" in numbers
    numbers = [int(n) for n in numbers if n != "shared"]
    if word == "acquire":
        try:
            held = reader if shared else lock
            held.acquire(timeout=numbers[0] / 1e3)
            now(True, "acquired - shared" if shared else "acquired -")
        except LockTimeout:
            say("busy")
        except Exception as e:
            say("failed %r" % e)
    elif word == "release":
        now(False, "releasing")
        try:
            say("released" if held.release() else "unreleased it was not held")
        except Exception as e:
            say("unreleased %r" % e)
    elif word == "write":
        with guard:
            say("write - looked" if believes else "refrained")
    elif word == "blind":
        say("write - blind")
    elif word == "crowd":
        crowd(*numbers)
    elif word == "cycle":
        cycle(lock, *numbers)
    elif word == "quit":
        client.stop()
        client.close()
        os._exit(0)
    else:
        sys.exit(line)
os._exit(0)
