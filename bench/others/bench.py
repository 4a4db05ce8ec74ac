"""Puts kazoo's locks to workloads: bench.py ADDRESS.

Each line on standard input is one: PATH SESSIONS THREADS LOCKS HOLD_MICROS DRAIN BURST MILLIS READS PERMITS ELECTION
SEVERAL, where several locks at a time are left to the others.
The answer is a line: OPERATIONS TOOK_MICROS MEDIAN_MICROS OVERLAPS CPU_MICROS HELD_MICROS.
"""

import os
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock


def run(address, path, sessions, threads, locks, hold, drain, burst, millis, reads, permits, election, _several):
    clients = []
    for _ in range(sessions):
        client = KazooClient(hosts=address, timeout=30)
        client.start()
        clients.append(client)
    room = 1 << 20 if reads else max(1, permits)
    inside, guard, overlaps, held, times, failed = [0] * max(1, locks), threading.Lock(), [0], [0.0], [], []

    def visit(k, takes=1):
        with guard:
            inside[k] += takes
            if inside[k] > room:
                overlaps[0] += 1
        if hold:
            began = time.monotonic()
            time.sleep(hold / 1e6)
        with guard:
            inside[k] -= takes
            if hold:
                held[0] += time.monotonic() - began

    def wait(client):
        try:
            with Lock(client, path + "-0"):
                visit(0)
        except Exception:
            failed.append(traceback.format_exc())

    def lock(client, name):
        if permits:
            return Semaphore(client, name, max_leases=permits)
        return WriteLock(client, name) if reads else Lock(client, name)

    def cycle(client, owner, first, end):
        try:
            mine, readers, elections = [], [], []
            for name in ["%s-%d" % (path, k) for k in range(locks)]:
                mine.append(lock(client, name))
                readers.append(ReadLock(client, name))
                elections.append(Election(client, name))
            i, k = 0, first
            while True:  # once at the least, however slow the machine is
                began = time.monotonic()
                if election:
                    elections[k].run(visit, k)
                elif (61 * i + 37 * owner) % 100 < reads:
                    with readers[k]:
                        visit(k)
                else:
                    with mine[k]:
                        visit(k, room if reads else 1)
                i += 1
                times.append(time.monotonic() - began - hold / 1e6)
                k = (k + 1) % locks
                if time.monotonic() >= end:
                    break
        except Exception:
            failed.append(traceback.format_exc())

    everybody = []
    if drain:
        ahead = Lock(clients[0], path + "-0")
        ahead.acquire()
        threading.stack_size(256 << 10)
        everybody = [threading.Thread(target=wait, args=(clients[i // burst % sessions],)) for i in range(drain)]
        for i, thread in enumerate(everybody):
            thread.start()
            while (i + 1) % burst == 0 and clients[0].exists(path + "-0").children_count < i + 2:
                time.sleep(0.001)
        time.sleep(1)
    cpu, start = sum(os.times()[:2]), time.monotonic()
    if drain:
        ahead.release()
    else:
        end = start + millis / 1e3
        everybody = [
            threading.Thread(target=cycle, args=(client, c * threads + n, n * locks // threads, end))
            for c, client in enumerate(clients)
            for n in range(threads)
        ]
        for thread in everybody:
            thread.start()
    for thread in everybody:
        thread.join()
    took, cpu = time.monotonic() - start, sum(os.times()[:2]) - cpu
    for client in clients:
        client.stop()
        client.close()
    if failed:
        sys.exit(failed[0])
    times.sort()
    ops = drain or len(times)
    median = took / drain if drain else times[len(times) // 2]
    print(ops, int(took * 1e6), int(median * 1e6), overlaps[0], int(cpu * 1e6), int(held[0] * 1e6), flush=True)


for line in sys.stdin:
    name, *numbers = line.split()
    run(sys.argv[1], name, *map(int, numbers))
