"""Puts kazoo's lock to workloads: bench.py ADDRESS.

Each line on standard input is one: PATH SESSIONS THREADS LOCKS HOLD_MICROS DRAIN BURST MILLIS.
The answer is a line: OPERATIONS TOOK_MICROS MEDIAN_MICROS OVERLAPS CPU_MICROS HELD_MICROS.
"""

import os
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


def run(address, path, sessions, threads, locks, hold, drain, burst, millis):
    clients = []
    for _ in range(sessions):
        client = KazooClient(hosts=address, timeout=30)
        client.start()
        clients.append(client)
    inside, guard, overlaps, held, times, failed = [0] * max(1, locks), threading.Lock(), [0], [0.0], [], []

    def visit(k):
        with guard:
            inside[k] += 1
            if inside[k] != 1:
                overlaps[0] += 1
        if hold:
            began = time.monotonic()
            time.sleep(hold / 1e6)
        with guard:
            inside[k] -= 1
            if hold:
                held[0] += time.monotonic() - began

    def wait(client):
        try:
            with Lock(client, path + "-0"):
                visit(0)
        except Exception:
            failed.append(traceback.format_exc())

    def cycle(client, first, end):
        try:
            mine = [Lock(client, "%s-%d" % (path, k)) for k in range(locks)]
            k = first
            while True:  # once at the least, however slow the machine is
                began = time.monotonic()
                with mine[k]:
                    visit(k)
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
            threading.Thread(target=cycle, args=(client, n * locks // threads, end)) for client in clients for n in range(threads)
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
